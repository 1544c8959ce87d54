"""The torture of the whole way: a small run of it holds, and its oracle finds what is wrong."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.support.result_shape import faults_of
from tools.lab.torture.whole_way.command import whole_way
from tools.lab.torture.whole_way.faults import FAULTS
from tools.lab.torture.whole_way.oracle import Gap, Journal, Rows, judge, total, untyped
from tools.lab.torture.whole_way.run import draw
from tools.lab.torture.whole_way.senders import KINDS

app = typer.Typer()
app.command()(whole_way)
SENT = Journal("meter", {1: 10, 2: 10, 3: 10}, epoch="00000007")
ALL = {1: Rows(10, 10), 2: Rows(10, 10), 3: Rows(10, 10)}
EXPIRED = Gap("meter", "00000007", 2, 2, 1, "expired", "limited")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_small_run_loses_nothing_and_has_nothing_twice(seed: int) -> None:
    done = CliRunner().invoke(app, ["--quick", "--json", "--seed", str(seed)])
    report = json.loads(done.stdout.splitlines()[-1])
    assert faults_of(report, "torture") == []
    assert (report["violations"], report["holds"], done.exit_code) == ([], True, 0), done.output
    assert (report["lost"], report["twice"]) == (0, 0)
    assert report["in_tables"] + report["dropped"] == report["messages"] > 0
    assert sum(report["struck"].values()) == 4


def test_folder_that_holds_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    done = CliRunner().invoke(app, ["--keep", str(tmp_path)])
    assert (done.exit_code, done.stderr) == (
        2,
        f"holdfast lab torture all: --keep {tmp_path}: the folder is not empty\n",
    )


def test_run_that_needs_more_room_than_there_is_does_not_begin(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["--keep", str(tmp_path), "--readings", str(10**15)])
    assert done.exit_code == 2
    assert "GB are needed" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_readings_that_are_all_there_once_hold() -> None:
    verdict = judge(SENT, ALL, [])
    assert (verdict.made, verdict.in_tables, verdict.lost, verdict.twice, verdict.holds) == (30, 30, 0, 0, True)


def test_acknowledged_message_that_is_missing_is_lost() -> None:
    verdict = judge(SENT, {1: ALL[1], 3: ALL[3]}, [])
    assert (verdict.lost, verdict.lost_messages, verdict.holds) == (10, [2], False)
    assert verdict.violations == ["1 of meter lost: 2"]


def test_message_without_some_of_its_readings_is_lost_in_part() -> None:
    verdict = judge(SENT, {**ALL, 2: Rows(9, 9)}, [])
    assert (verdict.lost, verdict.violations) == (1, ["1 of meter there in part: 2"])


@pytest.mark.parametrize("rows", [Rows(20, 10), Rows(11, 10)])
def test_reading_that_is_there_twice_is_found(rows: Rows) -> None:
    verdict = judge(SENT, {**ALL, 3: rows}, [])
    assert (verdict.twice, verdict.lost, verdict.holds) == (rows.rows - 10, 0, False)
    assert verdict.violations == ["1 of meter there twice: 3"]


def test_reading_that_is_twice_in_place_of_another_is_both_lost_and_twice() -> None:
    verdict = judge(SENT, {**ALL, 2: Rows(10, 9)}, [])
    assert (verdict.lost, verdict.twice) == (1, 1)


def test_message_that_its_sender_has_sent_again_without_identity_may_be_there_again() -> None:
    verdict = judge(SENT._replace(repeated=frozenset([3])), {**ALL, 3: Rows(20, 10)}, [])
    assert (verdict.repeated, verdict.twice, verdict.holds) == (10, 0, True)


@pytest.mark.parametrize("found", [{}, {4: Rows(10, 10)}])
def test_message_whose_acknowledgement_never_came_may_be_there_or_not(found: dict[int, Rows]) -> None:
    assert judge(SENT._replace(uncertain=frozenset([4])), {**ALL, **found}, []).holds


def test_message_whose_acknowledgement_never_came_may_not_be_there_twice() -> None:
    assert judge(SENT._replace(uncertain=frozenset([4])), {**ALL, 4: Rows(20, 10)}, []).twice == 10


def test_message_that_was_never_sent_is_found() -> None:
    assert judge(SENT, {**ALL, 9: Rows(10, 10)}, []).violations == [
        "message 9 of meter is in the tables, and was never sent"
    ]


def test_message_that_a_limit_has_dropped_is_not_lost_if_a_gap_says_why() -> None:
    verdict = judge(SENT._replace(limited_by="limited"), {1: ALL[1], 3: ALL[3]}, [EXPIRED])
    assert (verdict.dropped, verdict.lost, verdict.holds) == (10, 0, True)


def test_gap_excuses_no_message_of_a_sender_that_has_no_limit() -> None:
    assert judge(SENT, {1: ALL[1], 3: ALL[3]}, [EXPIRED]).lost == 10


@pytest.mark.parametrize(
    "gap",
    [
        EXPIRED._replace(reason="unknown"),
        EXPIRED._replace(reason="in transit"),
        EXPIRED._replace(reason="lost"),
        EXPIRED._replace(epoch="00000008"),
        EXPIRED._replace(origin="another"),
        EXPIRED._replace(lo=3, hi=3),
        EXPIRED._replace(route="main"),
    ],
)
def test_gap_without_a_reason_or_of_other_messages_excuses_nothing(gap: Gap) -> None:
    assert judge(SENT._replace(limited_by="limited"), {1: ALL[1], 3: ALL[3]}, [gap]).lost == 10


@pytest.mark.parametrize("reason", ["unknown", "in transit", "lost"])
def test_gap_without_a_reason_is_found(reason: str) -> None:
    assert untyped([EXPIRED._replace(reason=reason)], "limited") == [f"a gap of meter/00000007, 2 to 2, is {reason}"]


def test_gap_with_a_reason_is_found_where_nothing_may_be_dropped() -> None:
    assert untyped([EXPIRED], "limited") == []
    assert untyped([EXPIRED], "main") == ["a gap of meter/00000007, 2 to 2, is expired"]


def test_total_has_the_counts_and_violations_of_all() -> None:
    whole = total([judge(SENT, {}, []), judge(SENT, {**ALL, 1: Rows(20, 10)}, [])])
    assert (whole.made, whole.in_tables, whole.lost, whole.twice, len(whole.violations)) == (60, 30, 30, 10, 2)


def test_faults_follow_from_the_seed_and_each_kind_strikes_before_one_strikes_again(seed: int) -> None:
    strikes = draw(seed, 2 * len(FAULTS))
    assert strikes == draw(seed, 2 * len(FAULTS)) != draw(seed + 1, 2 * len(FAULTS))
    assert {strike.fault for strike in strikes[: len(FAULTS)]} == set(FAULTS)
    assert [strike.at for strike in strikes] == sorted(strike.at for strike in strikes)


def test_shares_of_the_senders_are_all_readings() -> None:
    assert sum(kind.share for kind in KINDS) == 100
