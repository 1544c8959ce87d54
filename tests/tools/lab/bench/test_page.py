"""The page of the gateway's figures has the figures of all its benchmarks, as they print them."""

import pytest
import typer

from tools.lab.bench.broker import command, fanout, memory, storage
from tools.lab.bench.broker.page import BEGIN, END, PAGE, renew
from tools.lab.bench.uplink import command as uplink
from tools.lab.figure import Figure
from tools.lab.result import end_bench

FIGURES = [
    Figure("fast", "messages/s", 300_000, 100_000, 200_000),
    Figure("large", "kB", 16.25, None, 15, at_most=True),
]


def test_the_page_shows_what_a_benchmark_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print("something before it")
    with pytest.raises(typer.Exit):
        end_bench("broker", FIGURES, 1.0, as_json=True, about={"title": "how fast"})
    page = renew(f"# Figures\n\n{BEGIN}\nthose of before\n{END}\n", [capsys.readouterr().out])
    assert page.splitlines() == [
        *("# Figures", "", BEGIN, "", "## How fast", ""),
        *("| | gateway | mosquitto | ratio | goal | |", "|---|---|---|---|---|---|"),
        "| fast, messages/s | 300,000 | 100,000 | 3 | ≥ 200,000 | ok |",
        "| large, kB | 16.25 |  |  | ≤ 15 | MISSED |",
        *("", END),
    ]


@pytest.mark.parametrize("module", [command, fanout, memory, storage, uplink])
def test_the_page_has_each_benchmark(module: object) -> None:
    title = str(vars(module)["TITLE"])
    assert f"\n## {title[0].upper()}{title[1:]}\n" in PAGE.read_text("utf-8")
