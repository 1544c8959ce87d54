"""The whole system with the demo's own faults: every process for real, counted from the tables."""

import asyncio
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud import OpenTables, ingest, open_views, select
from tools.cli.paths import source_root
from tools.lab.demo.faults import Fault, Say, draw_faults
from tools.lab.demo.run import Run
from tools.lab.demo.site import GATEWAY, Broker, Site
from tools.lab.demo.timeline import Timeline
from tools.lab.demo.verdict import judge
from tools.lab.firmware import find_firmware
from tools.lab.testing.mosquitto import mosquitto
from wire.bulk.column_batch import decode_batch

READINGS = 1500


@contextmanager
def central_broker(kind: str, folder: Path) -> Iterator[Broker | None]:
    """Yields a mosquitto; None stands for Holdfast's own broker, which the site starts."""
    if kind == "holdfast":
        yield None
    else:
        with mosquitto(folder) as port:
            yield Broker("127.0.0.1", port)


async def drive(run: Run) -> None:
    try:
        await run.open()
        await run.flow()
        await run.drain()
    finally:
        await run.close()


@pytest.mark.long
@pytest.mark.parametrize(("central", "nth"), [("holdfast", 0), ("mosquitto", 1)])
async def test_no_reading_is_missing_or_twice_after_a_cut_link_a_killed_gateway_and_a_power_cut(
    central: str, nth: int, seed: int, tmp_path: Path, spark: SparkSession
) -> None:
    firmware, why_not = find_firmware()
    assert why_not is None, "the tests insist on the real MicroPython"
    faults = draw_faults(random.Random(f"{seed}/{nth}"))
    with central_broker(central, tmp_path) as broker:
        site = Site(tmp_path, "test", broker, firmware, READINGS)
        run = Run(site, READINGS, faults, print)
        await drive(run)
    report = ingest(spark, site.landing, tmp_path / "tables")
    open_views(spark, tmp_path / "tables")
    verdict = judge(spark, run.made())
    assert verdict.total("made") == READINGS
    assert (verdict.total("missing"), verdict.total("twice")) == (0, 0), verdict
    assert verdict.holds
    check_timeline(run.timeline)
    assert report.rows_in == report.new + report.duplicates + report.quarantined
    assert report.quarantined == 0
    assert select(spark, "SELECT * FROM gaps").rows == []


@pytest.mark.long
async def test_no_reading_is_missing_or_twice_after_the_gateway_lost_its_store_and_devices_have_kept_theirs(
    tmp_path: Path, spark: SparkSession
) -> None:
    """What the gateway has acknowledged and not handed on is gone with its store: the flash of the devices has it."""

    async def lose_the_store(site: Site, _say: Say) -> None:
        await site.link.cut()
        await asyncio.sleep(3)  # messages gather at the gateway
        await site.processes[GATEWAY].down()
        shutil.rmtree(site.folder / GATEWAY)
        await site.link.open()
        await site.processes[GATEWAY].up()

    firmware, why_not = find_firmware()
    assert why_not is None, "the tests insist on the real MicroPython"
    site = Site(tmp_path, "test", None, firmware, READINGS, until="receipt")
    run = Run(site, READINGS, [Fault(0.4, lose_the_store, "the gateway's store")], print)
    await drive(run)
    ingest(spark, site.landing, tmp_path / "tables")
    open_views(spark, tmp_path / "tables")
    verdict = judge(spark, run.made())
    assert verdict.total("made") == READINGS
    assert (verdict.total("missing"), verdict.total("twice")) == (0, 0), verdict
    assert verdict.holds


def check_timeline(timeline: Timeline) -> None:
    """The timeline ends with every reading landed, and no reading was forwarded while the link was cut."""
    last = timeline.samples[-1]
    assert last.made == READINGS == last.landed
    assert last.forwarded >= READINGS  # also readings that a device had stored but not counted when its power was cut
    assert len(timeline.outages) == 3
    cut = timeline.outages[0]
    meanwhile = [one for one in timeline.samples if cut.from_s + 1 < one.at_s < cut.until_s]
    assert meanwhile and meanwhile[0].forwarded == meanwhile[-1].forwarded
    assert meanwhile[0].made < meanwhile[-1].made


async def test_stock_clients_see_the_readings_at_both_brokers_and_their_own_messages_end_in_the_table(
    tmp_path: Path, spark: SparkSession
) -> None:
    async def scenario(site: Site, run: Run) -> tuple[list[str], list[str]]:
        try:
            await run.open()
            hearing = [
                await mosquitto_sub(site.gateway, f"{site.topic_root}/+", "-C", "40"),
                await mosquitto_sub(site.central, f"{site.topic_root}/batch", "-C", "4", "-F", "%x"),
            ]
            await mosquitto_pub(site.gateway, f"{site.topic_root}/kitchen", '[{"n":"kitchen:t","u":"Cel","v":21.5}]')
            heard = [(await process.communicate())[0].decode().splitlines() for process in hearing]
            await run.flow()
            await run.drain()
        finally:
            await run.close()
        return heard[0], [
            one.payload.decode() for batch in heard[1] for one in decode_batch(bytes.fromhex(batch)).messages()
        ]

    firmware, _ = find_firmware()
    # Enough that the first device still sends when the second one and the subscribers have started.
    site = Site(tmp_path, "test", None, firmware, READINGS)
    at_gateway, at_central = await scenario(site, Run(site, READINGS, [], print))
    for heard in (at_gateway, at_central):
        assert any('"bn":"garage-test:"' in line for line in heard)
        assert any('"bn":"greenhouse-test:"' in line for line in heard)
    ingest(spark, site.landing, tmp_path / "tables")
    with OpenTables(tmp_path / "tables") as tables:
        found = tables.select("SELECT origin, seq, decode(payload) FROM bronze_messages WHERE topic LIKE '%/kitchen'")
    assert found.rows == [("gateway-test", 1, '[{"n":"kitchen:t","u":"Cel","v":21.5}]')]


async def mosquitto_sub(broker: Broker, topic_filter: str, *options: str) -> asyncio.subprocess.Process:
    """A stock subscriber that ends after a number of messages; subscribed when this returns."""
    address = ("-V", "5", "-h", broker.host, "-p", str(broker.port))
    command = ("mosquitto_sub", *address, "-q", "1", "-t", topic_filter, "-W", "60", *options)
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


async def mosquitto_pub(broker: Broker, topic: str, payload: str) -> None:
    address = ("-V", "5", "-h", broker.host, "-p", str(broker.port))
    process = await asyncio.create_subprocess_exec("mosquitto_pub", *address, "-q", "1", "-t", topic, "-m", payload)
    assert await process.wait() == 0


def test_ctrl_c_ends_the_demo_cleanly_and_leaves_no_process_behind(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    command = [sys.executable, "-m", "tools.cli.main", "demo", "--keep", str(folder), "--readings", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=source_root()) as demo:
        assert demo.stdout is not None
        while "readings are being made" not in demo.stdout.readline():
            pass
        while len(processes_of(folder)) < 6 + 1:  # the job, which starts last, is one of them; and the demo itself
            assert demo.poll() is None
        demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()
    assert "every process has been stopped" in rest
    assert demo.returncode == 130
    assert processes_of(folder) == []


def processes_of(folder: Path) -> list[str]:
    """The command lines that name the folder, of all processes of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in line:
                found.append(line)
    return found
