"""What every benchmark prints of a figure, for people and for programs."""

import json

import pytest

from tools.bench.figure import Figure, print_figures

HEAD = {"workload": "some messages"}
FIGURES = [
    Figure("fast", "messages/s", 300, 100, 200),
    Figure("large", "kB", 20, None, 15, at_most=True),
    Figure("told", "ms", 0.5),
    Figure("none of it", "", 0, 9, 0, at_most=True),
]


def test_a_table_shows_both_the_bar_and_whether_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    print_figures(HEAD, FIGURES, as_json=False)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["workload:", "some", "messages"],
        [],
        ["gateway", "mosquitto", "ratio", "bar"],
        ["fast", "300", "100", "3", "x", "≥", "200", "messages/s", "ok"],
        ["large", "20", "≤", "15", "kB", "MISSED"],
        ["told", "0.5", "ms"],
        ["none", "of", "it", "0", "9", "0", "x", "≤", "0", "ok"],
    ]


def test_json_has_the_head_and_each_figure_by_the_names_of_what_was_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_figures(HEAD, FIGURES, as_json=True, names=("measured", "littlefs"))
    found = json.loads(capsys.readouterr().out)
    assert found["workload"] == "some messages"
    assert [(one["measured"], one["littlefs"]) for one in found["figures"]] == [
        (300, 100),
        (20, None),
        (0.5, None),
        (0, 9),
    ]
    assert [(one["ok"], one["ratio"]) for one in found["figures"]] == [
        (True, 3),
        (False, None),
        (None, None),
        (True, 0),
    ]
