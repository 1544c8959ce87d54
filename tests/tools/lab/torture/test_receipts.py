"""A sample of the torture of receipts, and proof that it notices what is missing or there twice."""

import asyncio
import json
import random
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
import typer
from typer.testing import CliRunner

from tests.support.result_shape import faults_of
from tools.lab.micropython import MicroPython
from tools.lab.testing.process import Process
from tools.lab.torture.device.life import live
from tools.lab.torture.receipts.command import receipts
from tools.lab.torture.receipts.faults import FAULTS
from tools.lab.torture.receipts.run import FIRST, ReceiptsOutcome, draw, judge, told_gaps
from tools.lab.torture.receipts.site import Identity
from tools.lab.torture.receipts.tortured import TorturedSite
from tools.lab.torture.strikes import allow

app = typer.Typer()
app.command()(receipts)
SENT = {("p0", 7, number) for number in (1, 2, 3)}
DEADLINE_S = 120.0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_sample_of_the_torture_holds(seed: int) -> None:
    done = CliRunner().invoke(app, ["--quick", "--json", "--seed", str(seed)])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout.splitlines()[-1])
    assert faults_of(report, "torture") == []
    assert (report["holds"], report["faults"]) == (True, 5)
    assert report["messages"] == 1000 - report["gone"] + report["of_devices"]
    assert report["of_devices"] > 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_a_gateway_acknowledged_and_lost_is_gone_of_publishers_and_comes_again_of_devices(
    micropython: MicroPython, tmp_path: Path
) -> None:
    async def scenario(site: TorturedSite) -> None:
        try:
            await site.open()
            publishers = [asyncio.create_task(one.run()) for one in site.publishers]
            site.broker.freeze()
            allow(site.publishers, 100)
            await asyncio.gather(*publishers)
            assert await site.until(lambda: all(one.stored() for one in site.devices), DEADLINE_S)
            await site.lose_gateway_store()
            assert (len(site.gone), site.accepted() & site.gone) == (100, set())
            site.broker.thaw()
            await site.back(site.gateway, "the gateway")
            await come_again(site)
        finally:
            await site.close()

    site = TorturedSite(micropython, tmp_path, 100, job_waits=True)
    asyncio.run(scenario(site))  # on a busy machine it takes longer than a test that is a coroutine may
    assert (site.violations, site.gateway.complaints()) == ([], [])


async def come_again(site: TorturedSite) -> None:
    """Returns when all that devices have stored has landed; the power of one was cut in a flash operation meanwhile."""
    for device in site.devices:
        await site.stop(device.process, device.name)
        device.stop_sampling()
    assert await site.devices[0].die_in_flash(random.Random(1)) is None
    for device in site.devices:
        await site.back(device.process, device.name)
    assert await site.until(lambda: site.accepted() <= landed(site), DEADLINE_S)


def landed(site: TorturedSite) -> set[Identity]:
    """What the landing files hold."""
    files = [site.landing / f"{stem}.parquet" for stem in site.landed()]
    rows = [row for file in files for row in parquet.read_table(file, columns=["origin", "epoch", "seq"]).to_pylist()]
    return {(row["origin"], row["epoch"], row["seq"]) for row in rows}


async def test_a_device_that_ends_by_itself_is_named() -> None:
    process = Process("board-1", [sys.executable, "-c", "print('no flash'); exit(3)"])
    assert await live(process, asyncio.sleep(DEADLINE_S)) == "board-1 ended by itself, exit code 3: ['no flash']"


def test_the_fault_before_the_first_run_of_the_job_strikes_first_and_once(seed: int) -> None:
    chance = random.Random(seed)
    runs = [[one.fault for one in draw(chance, list(FAULTS), 40, 1000)] for _ in range(100)]
    assert {run.count(FIRST) for run in runs} == {0, 1}
    assert all(run[0] == FIRST for run in runs if FIRST in run)
    assert all(set(FAULTS) - {FIRST} <= set(run) and len(run) == 40 for run in runs)
    assert [one.fault for one in draw(chance, [FIRST], 40, 1000)] == [FIRST]


def test_a_gap_is_named_unless_all_of_it_went_with_the_store_of_the_gateway() -> None:
    gaps = [
        ("p0", "00000007", 1, 3, "lost"),
        ("p0", "00000007", 3, 4, "unknown"),
        ("board-1", "00000007", 1, 1, "lost"),
    ]
    assert list(told_gaps(gaps, SENT)) == ["a gap of p0, 3 to 4, is unknown", "a gap of board-1, 1 to 1, is lost"]


def test_what_is_missing_or_there_twice_is_counted_and_named() -> None:
    outcome = ReceiptsOutcome()
    found = list(judge(outcome, SENT, Counter({("p0", 7, 1): 1, ("p0", 7, 3): 3})))
    assert found == ["1 of p0 lost: 2", "1 of p0 there twice: 3"]
    assert (outcome.messages, outcome.lost, outcome.twice, outcome.holds) == (3, 1, 2, False)


def test_what_is_there_once_holds_though_it_was_not_acknowledged_before_a_kill() -> None:
    outcome = ReceiptsOutcome()
    assert list(judge(outcome, SENT, Counter(dict.fromkeys([*SENT, ("p0", 7, 4)], 1)))) == []
    assert outcome.holds


def test_a_fault_that_there_is_not_is_named() -> None:
    result = CliRunner().invoke(app, ["--fault", "flood"])
    assert result.exit_code == 2
    assert all(name in result.output.replace("\n", "") for name in ("flood", "landing_folder"))


def test_every_fault_says_what_it_does() -> None:
    assert all(fault.__doc__ for fault in FAULTS.values())
