"""Messages that were acknowledged and then lost on their way come again by themselves, and count once.

The broker, the gateway and the lander are real processes, as operators run them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud import Report, ingest
from host.credentials import Credentials
from host.server import parse_server
from tools.cli.tables.receipts import Audience
from tools.lab.torture.receipts.run import find_gaps
from tools.lab.torture.receipts.site import ReceiptsSite
from tools.lab.torture.strikes import allow
from uplink.config.keeping import RESEND_AFTER_S

DEADLINE_S = 120.0
MANY, MANY_WITHIN_S, JOB_EVERY_S = 100_000, 600.0, 60.0
BATCHES = 12


class Case:
    """A site, its publishers, and a job in this process that runs when it is told to."""

    def __init__(self, site: ReceiptsSite, spark: SparkSession) -> None:
        self.site = site
        self._spark = spark
        self._audience = Audience(parse_server(f"mqtt://127.0.0.1:{site.broker.port}", ("mqtt",)), Credentials(), None)

    async def publish(self, messages: int) -> None:
        """Returns when gateway and broker have acknowledged `messages` messages in all."""
        allow(self.site.publishers, messages)
        await asyncio.gather(*(one.reached(one.limit) for one in self.site.publishers))
        assert await self.site.until(self.site.is_handed_on, DEADLINE_S)

    async def land_without_ingest(self) -> set[str]:
        """A hundred messages are in the tables, and a hundred more land; returns the stems of files with these."""
        await self.publish(100)
        await self.job_until(self.site.is_complete)
        before = self.site.landed()
        await self.publish(200)
        assert await self.site.until(lambda: bool(self.site.landed() - before), DEADLINE_S)
        return self.site.landed() - before

    async def job(self) -> Report:
        """Runs the job, and gives receipts."""
        return await asyncio.to_thread(self._run_job)

    def _run_job(self) -> Report:
        report = ingest(self._spark, self.site.landing, self.site.tables)
        self._audience.publish(self.site.tables, self.site.landing)
        return report

    async def job_until(self, is_so: Callable[[], bool], within_s: float = DEADLINE_S, every_s: float = 0.0) -> float:
        """Runs the job again and again until it is so; returns how long that took, in seconds."""
        began_s = time.monotonic()
        while not await asyncio.to_thread(is_so):
            assert time.monotonic() - began_s < within_s, f"not within {within_s:g} s: {self.site.status()}"
            run_s = time.monotonic()
            await self.job()
            await asyncio.sleep(max(0.0, run_s + every_s - time.monotonic()))
        return time.monotonic() - began_s

    def check(self) -> None:
        """All that the gateway has acknowledged is in the tables, once."""
        found = self.site.in_tables()
        assert self.site.accepted() - found.keys() == set()
        assert {one: count for one, count in found.items() if count > 1} == {}
        assert find_gaps(self.site) == []

    def is_settled(self) -> bool:
        """Whether the gateway keeps nothing."""
        status = self.site.status()
        return not (status["backlog_messages"] or status["unproven_messages"])


@asynccontextmanager
async def case_of(folder: Path, spark: SparkSession, messages: int, resend_after_s: int) -> AsyncIterator[Case]:
    site = ReceiptsSite(folder, messages, resend_after_s, job_every_s=None)
    try:
        await site.open()
        publishers = [asyncio.create_task(one.run()) for one in site.publishers]
        yield Case(site, spark)
        for one in publishers:
            one.cancel()
        assert site.gateway.complaints() == []
    finally:
        await site.close()


async def lose_central_store(case: Case, messages: int) -> None:
    """The broker has `messages` that have not landed, and loses them."""
    site = case.site
    await site.lander.down()
    await case.publish(messages)
    await site.lose_central_store()
    await site.broker.up()
    await site.lander.up()


async def test_what_a_broker_lost_with_its_store_comes_again_and_counts_once(
    tmp_path: Path, spark: SparkSession
) -> None:
    async with case_of(tmp_path, spark, 400, 1) as case:
        await case.publish(100)
        await case.job_until(case.site.is_complete)
        await lose_central_store(case, 400)
        await case.job_until(case.site.is_complete)
        case.check()
        assert case.site.status()["unproven_sent"] >= 300


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_messages_that_a_broker_lost_are_in_the_tables_ten_minutes_after_its_return(
    tmp_path: Path, spark: SparkSession
) -> None:
    async def scenario() -> float:
        async with case_of(tmp_path, spark, 100 + MANY, RESEND_AFTER_S) as case:
            await case.publish(100)
            await case.job_until(case.site.is_complete)
            await lose_central_store(case, 100 + MANY)
            took_s = await case.job_until(case.site.is_complete, MANY_WITHIN_S, JOB_EVERY_S)
            case.check()
            return took_s

    took_s = asyncio.run(scenario())  # it takes longer than a test that is a coroutine may
    print(f"{MANY} messages came again {took_s:.0f} s after the broker's return")


@pytest.mark.parametrize("with_manifest", [True, False])
async def test_messages_of_a_landing_file_that_goes_before_ingest_come_again(
    with_manifest: bool, tmp_path: Path, spark: SparkSession
) -> None:
    async with case_of(tmp_path, spark, 300, 1) as case:
        site = case.site
        waiting = await case.land_without_ingest()
        for stem in waiting:
            (site.landing / f"{stem}.parquet").unlink()
            if with_manifest:
                (site.landing / f"{stem}.json").unlink()
        await case.publish(300)
        await case.job_until(site.is_complete)
        case.check()
        report = await case.job()
        assert report.missing if with_manifest else report.set_aside, "the job goes on to say which files are gone"


@pytest.mark.parametrize("restarts", [True, False])
async def test_messages_of_a_landing_folder_that_goes_before_ingest_come_again(
    restarts: bool, tmp_path: Path, spark: SparkSession
) -> None:
    """A lander whose folder is gone lands nothing, until the folder is there again or the lander is started again."""
    async with case_of(tmp_path, spark, 300, 1) as case:
        site = case.site
        await case.land_without_ingest()
        site.lose_landing_folder()
        if restarts:
            await site.lander.down()
            await site.lander.up()
        else:
            await case.publish(250)
            await asyncio.to_thread(site.lander.says, "cannot land in", DEADLINE_S)
            site.landing.mkdir()
        await case.publish(300)
        await case.job_until(site.is_complete)
        case.check()


@pytest.mark.long
async def test_nothing_goes_again_while_nothing_is_lost(tmp_path: Path, spark: SparkSession) -> None:
    async with case_of(tmp_path, spark, 100 * BATCHES, 1) as case:
        for batch in range(1, BATCHES + 1):
            await case.publish(100 * batch)
            await case.job_until(case.site.is_complete)
        await case.job_until(case.is_settled)
        case.check()
        assert case.site.status()["unproven_sent"] == 0
