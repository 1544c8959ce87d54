"""A sample of the torture of routes, and proof that it notices what goes wrong."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.support.result_shape import faults_of
from tools.lab.torture.publisher import EPOCH, Publisher
from tools.lab.torture.uplink import faults
from tools.lab.torture.uplink.clock import Clock
from tools.lab.torture.uplink.command import uplink
from tools.lab.torture.uplink.faults import FAULTS, SECURE_ONLY
from tools.lab.torture.uplink.run import RouteOutcome, draw, judge, judge_statements, overtaken
from tools.lab.torture.uplink.site import RouteSite, Settings
from wire.identity import encode_identity
from wire.route_numbers import HandedOn, Statement

app = typer.Typer()
app.command()(uplink)
MIXED = ("cut", "delay", "throttle", "silence", "corrupt", "misdirect", "kill", "restart", "freeze")
ALONE = ("full", "page", "jump", "no_clock", "stall")


def reported(*arguments: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize(("broker", "qos"), [("mosquitto", 2), ("gateway", 1)])
def test_nothing_is_lost_or_there_twice_over_faults_of_everything(broker: str, qos: int, seed: int) -> None:
    chosen = [word for fault in MIXED for word in ("--fault", fault)]
    size = ["--runs", "1", "--messages", "400", "--faults", "9"]
    code, report = reported("--broker", broker, "--qos", str(qos), "--seed", str(seed), *size, *chosen)
    assert faults_of(report, "torture") == []
    assert (code, report["violations"], report["holds"]) == (0, [], True)
    assert (report["lost"], report["twice"], report["disorder"], report["messages"]) == (0, 0, 0, 400)
    assert set(report["struck"]) >= set(MIXED) - SECURE_ONLY


def test_in_two_lanes_nothing_is_lost_or_there_twice_and_each_lane_is_in_order(seed: int) -> None:
    chosen = [word for fault in ("cut", "kill", "restart", "silence") for word in ("--fault", fault)]
    size = ["--runs", "1", "--messages", "400", "--faults", "8"]
    code, report = reported("--order", "live_first", "--seed", str(seed), *size, *chosen)
    assert (code, report["violations"], report["order"]) == (0, [], "live_first")
    assert (report["lost"], report["twice"], report["disorder"], report["messages"]) == (0, 0, 0, 400)


def test_statements_are_true_over_faults_of_everything(seed: int) -> None:
    chosen = [word for fault in ("cut", "kill", "restart", "page", "renew") for word in ("--fault", fault)]
    size = ["--broker", "gateway", "--qos", "1", "--runs", "1", "--messages", "400", "--faults", "5"]
    code, report = reported("--statements", "--seed", str(seed), *size, *chosen)
    assert (code, report["violations"], report["messages"]) == (0, [], 400)
    assert report["statements"] > 0


def test_a_statement_of_messages_that_did_not_come_is_found_out() -> None:
    def stated(number: int, first: int, last: int, handed: HandedOn) -> Statement:
        return Statement("edge", "next", 31, number, first, last, [handed], [], [], False, [])

    came = Counter(("p0", EPOCH, seq) for seq in (1, 2, 3, 5))
    true = [stated(1, 1, 3, HandedOn("p0", EPOCH, 3, 3, 1, 3)), stated(2, 4, 5, HandedOn("p0", EPOCH, 5, 1, 5, 5))]
    assert list(judge_statements(true, came)) == []
    assert list(judge_statements([*true, stated(3, 6, 7, HandedOn("p0", EPOCH, 7, 2, 5, 7))], came)) == [
        "statement 3 of epoch 0000001f: 2 of p0 were handed on, and 1 came"
    ]
    assert list(judge_statements([*true, stated(3, 5, 6, HandedOn("p0", EPOCH, 5, 1, 5, 5))], came)) == [
        "statement 3 of epoch 0000001f covers 5, as one before it does"
    ]


@pytest.mark.parametrize(("order", "late", "most"), [("strict", 2, 3), ("live_first", 0, 2)])
def test_a_lane_may_overtake_the_other_and_no_message_may_overtake_its_own(order: str, late: int, most: int) -> None:
    publisher = Publisher("p0", 0, 1, 7)
    publisher.accepted = list(range(1, 8))
    assert len(overtaken(publisher, [1, 4, 2, 5, 3, 6, 7], order)) == late
    assert len(overtaken(publisher, [7, 6, 5, 4], order)) == most


@pytest.mark.parametrize("fault", ALONE)
def test_a_gateway_keeps_running_and_recovers_from(fault: str, seed: int) -> None:
    size = ["--runs", "1", "--messages", "300", "--faults", "2"]
    code, report = reported("--qos", "2", "--seed", str(seed), "--fault", fault, *size)
    assert (code, report["violations"], report["struck"]) == (0, [], {fault: 2})
    assert (report["lost"], report["twice"], report["disorder"], report["messages"]) == (0, 0, 0, 300)


def test_a_route_that_stands_or_loses_messages_is_found_out(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose(site: RouteSite, _: random.Random) -> None:
        """A disk that is replaced, and is not owned up to."""
        await faults.renew(site, random.Random(seed))
        site.excused.clear()

    monkeypatch.setitem(faults.FAULTS, "renew", lose)
    size = ["--runs", "1", "--messages", "200", "--faults", "2"]
    code, report = reported("--qos", "1", "--seed", str(seed), "--fault", "renew", *size)
    assert code == 1 and report["lost"]
    assert f"--seed {seed}" in str(report["violations"])


def test_a_fault_that_there_is_not_is_named() -> None:
    result = CliRunner().invoke(app, ["--fault", "flood"])
    assert result.exit_code == 2
    assert all(name in result.output.replace("\n", "") for name in ("flood", "misdirect"))


def test_a_seed_gives_the_same_faults_each_time(seed: int) -> None:
    outcome = RouteOutcome(broker="mosquitto", qos=1)
    drawn, again, other = (draw(outcome, one, 20, 4000, list(FAULTS)) for one in (seed, seed, seed + 1))
    assert drawn == again != other
    assert [strike.at for strike in drawn[1]] == sorted(strike.at for strike in drawn[1])


def test_every_fault_strikes_before_one_strikes_again(seed: int) -> None:
    outcome = RouteOutcome(broker="mosquitto", qos=1)
    settings, strikes = draw(outcome, seed, len(FAULTS), 4000, list(FAULTS))
    assert {strike.fault for strike in strikes} >= set(FAULTS) - SECURE_ONLY
    assert settings.is_secure or not SECURE_ONLY & {strike.fault for strike in strikes}


def test_every_fault_says_what_it_does() -> None:
    assert all(fault.__doc__ for fault in FAULTS.values())


def judged(folder: Path, came: list[int], qos: int = 2, **had: Any) -> RouteOutcome:
    """Judges a run in which five messages of p0 were acknowledged, and these came."""
    site = RouteSite(folder, Settings("gateway", qos, messages=10))
    (folder / "gateway.log").write_text(had.get("log", ""))
    site.publishers = site.publishers[:1]
    site.publishers[0].accepted = [1, 2, 3, 4, 5]
    site.excused = {("p0", number) for number in had.get("excused", ())}
    site.repeatable = {("p0", number) for number in had.get("repeatable", ())}
    outcome = RouteOutcome(broker="gateway", qos=qos)
    arrived = [("p0", number, encode_identity("p0", EPOCH, number)) for number in came]
    outcome.violations += judge(outcome, site, arrived, had.get("damaged", 0))
    return outcome


def test_what_is_missing_twice_or_overtaken_is_counted_and_named(tmp_path: Path) -> None:
    outcome = judged(tmp_path, [2, 1, 3, 3, 5])
    assert (outcome.lost, outcome.twice, outcome.disorder, outcome.holds) == (1, 1, 1, False)
    assert outcome.violations == ["1 of p0 lost: 4", "1 of p0 twice: 3", "1 of p0 overtaken: 1"]


def test_what_comes_again_with_its_identity_is_marked_at_qos_1(tmp_path: Path) -> None:
    outcome = judged(tmp_path, [1, 2, 3, 1, 2, 3, 4, 5], qos=1)
    assert (outcome.marked, outcome.twice, outcome.disorder, outcome.holds) == (3, 0, 0, True)


@pytest.mark.parametrize(
    ("came", "had"),
    [
        ([1, 2, 3, 3, 4, 5], {"repeatable": [3]}),
        ([1, 2, 4, 5], {"excused": [3]}),
        ([1, 4, 5], {"damaged": 2}),
    ],
)
def test_what_a_lost_disk_or_session_explains_is_no_violation(
    came: list[int], had: dict[str, Any], tmp_path: Path
) -> None:
    assert judged(tmp_path, came, **had).holds


def test_more_is_missing_than_the_store_says_is_damaged(tmp_path: Path) -> None:
    outcome = judged(tmp_path, [1, 5], damaged=2)
    assert (outcome.damaged, outcome.lost) == (2, 1)


def test_a_traceback_in_the_gateways_log_is_a_violation_that_names_its_error(tmp_path: Path) -> None:
    log = 'fine\nTraceback (most recent call last):\n  File "run.py", line 1\nOSError: disk I/O error\nfine\n'
    (violation,) = judged(tmp_path, [1, 2, 3, 4, 5], log=log).violations
    assert violation == "the gateway's log: Traceback (most recent call last): OSError: disk I/O error"


def test_a_clock_is_set_for_a_process_that_runs(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    before = clock.path.stat().st_ino
    clock.set(-3600.0)
    assert clock.path.stat().st_ino == before  # the gateway has it mapped
