"""``holdfast network show``: an operator looks at the links of gateways that run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import holdfast
from tests.tools.cli.gateway.running import Gateway, Watched, check, publish
from uplink.control import ControlFailed, ask

RULES = "allow * publish,subscribe public/#\nallow - identify *\nallow - neighbour *\n"


def show(gateway: Gateway, *options: str) -> str:
    done = holdfast("network", "show", "--config", str(gateway.path), *options)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def shown(gateway: Gateway, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first answer of a gateway to the request of ``network show`` that is as expected."""
    while not until(found := ask(gateway.path.parent / "store", "network")):
        pass
    return dict(found)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Watched, Watched]:
    """A gateway and a neighbour that dials it."""
    for name in "ma":
        (tmp_path / name).mkdir()
    (tmp_path / "m/rules").write_text(RULES)
    m = Watched(
        tmp_path / "m",
        'acl = "rules"',
        '[[neighbour]]\nname = "a"\n[[neighbour.outgoing]]\ntopic = "public/orders"\nselect = "region = \'EU\'"\n',
        name="m",
    )
    route = f'[[route]]\nname = "to-m"\nbroker = "mqtt://127.0.0.1:{m.port}"\n[route.neighbour]\nname = "m"\n'
    return m, Watched(tmp_path / "a", 'network.summary = ["public/#", "secret"]', route, name="a")


def test_links_are_shown_at_both_ends_with_what_is_wanted_refused_and_dropped(pair: tuple[Watched, Watched]) -> None:
    m, a = pair
    with m.running(), a.running():
        shown(m, lambda found: found["links"][0]["wanted"] == 1)
        assert publish(m.port, "-t", "public/orders") == 0
        found = shown(m, lambda found: found["links"][0]["dropped"] == {"filtered": 1})
        assert found["gateway"] == "m" and found["duplicates"] == 0
        heading, row, duplicates = show(m).splitlines()
        assert heading.split()[:3] == ["link", "neighbour", "dialled"]
        assert row.split()[:6] == ["a-to-m", "a", "a", "default,", "multi", "active-active"]
        assert row.split()[6:8] == ["up", "for"] and row.split()[-4:] == ["1", "0", "filtered", "1"]
        assert duplicates == "0 messages came again over a link since the start, and were not stored again"
        lines = show(a, "--interest").splitlines()
        assert "a-to-m: the neighbour refuses 'secret' (not authorized (0x87))" in lines
        assert [line.split() for line in lines[-2:]] == [
            ["public/#", "1", "here", "a-to-m"],
            ["secret", "1", "here", "-"],
        ]
        assert show(a, "--filter", "public/orders").splitlines()[-1].split() == ["public/#", "1", "here", "a-to-m"]
        assert show(a, "--filter", "none").splitlines()[-1] == "no such topic filter is wanted or asked for"
        assert show(a, "--interest", "--limit", "1").splitlines()[-1] == "more follow: --after 'public/#'"
        whole = json.loads(show(a, "--json", "--after", "public/#"))
        assert [one["filter"] for one in whole["filters"]] == ["secret"] and not whole["has_more"]
        status, text = a.get("/healthz")
        assert status == 503 and "'secret' (not authorized (0x87))" in text
        assert (
            'holdfast_link_connected{link="a-to-m",mode="active-active",neighbour="a",zone="default"} 1.0'
            in m.get("/metrics")[1]
        )


def test_a_neighbour_that_is_away_is_shown_with_what_waits_for_it(pair: tuple[Watched, Watched]) -> None:
    m, a = pair
    with m.running():
        assert show(m).splitlines()[2] == "a: down: the neighbour has never connected"
        with a.running():
            shown(m, lambda found: found["links"][0]["wanted"] == 1)
        shown(m, lambda found: not found["links"][0]["connected"])
        assert publish(m.port, "-t", "public/1") == 0
        row, remark = show(m).splitlines()[1:3]
        assert row.split()[6:8] == ["down", "for"] and " 1        13     " in row
        assert remark.startswith("a-to-m: down since 20") and remark.endswith("Z: the neighbour is not connected")
        status, text = m.get("/healthz")
        assert (status, text.splitlines()[0]) == (200, "ok") and "link a-to-m to a: down since 20" in text


def test_a_gateway_without_neighbours_says_so(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    with gateway.running():
        assert show(gateway) == "garage has no neighbours\n"
        found = json.loads(show(gateway, "--json"))
        assert found == {"gateway": "garage", "links": [], "duplicates": 0, "problem": ""}
        bad = holdfast("network", "show", "--config", str(gateway.path), "--filter", "a/#/b")
        assert bad.exit_code == 2 and bad.stderr.startswith("holdfast network show: --filter: ")
        with pytest.raises(ControlFailed, match="expected a request"):
            ask(tmp_path / "store", "interest", limit=10_000)
    done = check("network", "show", "--config", str(gateway.path))
    text = f"holdfast network show: no gateway runs on the store {tmp_path}/store\n"
    assert (done.returncode, done.stderr) == (1, text)


def test_links_of_streams_are_shown_behind_those_of_the_default_stream(tmp_path: Path) -> None:
    for name in "ma":
        (tmp_path / name).mkdir()
        (tmp_path / name / "rules").write_text(f"{RULES}allow * publish,subscribe $SYS/STREAM/#\n")
    stream = '[network]\nsummary = ["$SYS/STREAM/plant/t/#"]\n[[stream]]\nname = "plant"\n'
    m = Gateway(tmp_path / "m", 'acl = "rules"', '[[stream]]\nname = "plant"\n[[neighbour]]\nname = "a"\n', name="m")
    route = f'[[route]]\nname = "to-m"\nbroker = "mqtt://127.0.0.1:{m.port}"\n[route.neighbour]\nname = "m"\n'
    a = Gateway(tmp_path / "a", 'acl = "rules"', stream + route, name="a")
    with m.running(), a.running():
        found = shown(m, lambda found: [one["wanted"] for one in found["links"]] == [0, 1])
        assert [(one["neighbour"], one["connected"]) for one in found["links"]] == [("a", True), ("a", True)]
        assert [line.split()[0] for line in show(a, "--stream", "plant").splitlines()[1:3]] == [
            "a-to-m",
            "a-to-m@plant",
        ]
        assert show(m, "--stream", "plant").splitlines()[-1].split() == ["t/#", found["links"][1]["name"], "-"]
        with pytest.raises(ControlFailed, match="no stream is named 'other'"):
            ask(tmp_path / "m/store", "interest", stream="other")
