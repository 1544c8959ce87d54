"""The faults behind a route that waits for receipts. Each takes the site and its own chance, and returns when it is
over."""

import asyncio
import random
import shutil

from tools.lab.torture import faults
from tools.lab.torture.receipts.site import JOB, ReceiptsSite
from tools.lab.torture.strikes import Faults, faults_in

DOWN_S = (0.05, 0.5)
PILE_S = 1.0  # meanwhile messages gather where they are about to be lost
LANDED_S = 15.0
AGES_S = (2.0, 6.0)  # how old a copy of the tables is


async def broker_store(site: ReceiptsSite, chance: random.Random) -> None:
    """The broker loses its store, with messages for the lander in it."""
    await site.stop(site.lander, "the lander")
    await asyncio.sleep(PILE_S)
    await site.lose_central_store()
    await asyncio.sleep(chance.uniform(*DOWN_S))
    await site.broker.up()
    await site.back(site.lander, "the lander")


async def kill_broker(site: ReceiptsSite, chance: random.Random) -> None:
    """The broker is killed: it has acknowledged what it has not written."""
    await faults.kill(site.broker, chance, DOWN_S)


async def landing_file(site: ReceiptsSite, chance: random.Random) -> None:
    """A landing file goes before the job has read it; its manifest goes too in half of the cases."""
    assert site.job is not None
    await site.stop(site.job, JOB)
    before = site.landed()
    if await site.until(lambda: bool(site.landed() - before), LANDED_S):
        lost = chance.choice(sorted(site.landed() - before))
        (site.landing / f"{lost}.parquet").unlink()
        if chance.random() < 0.5:
            (site.landing / f"{lost}.json").unlink()
    await site.back(site.job, JOB)


async def landing_folder(site: ReceiptsSite, chance: random.Random) -> None:
    """The whole landing folder goes before the job has read it. An operator makes an empty one, or starts the lander
    again, which makes one."""
    assert site.job is not None
    await site.stop(site.job, JOB)
    before = site.landed()
    await site.until(lambda: bool(site.landed() - before), LANDED_S)
    is_restarted = chance.random() < 0.5
    if is_restarted:
        await site.stop(site.lander, "the lander")
    site.lose_landing_folder()
    if is_restarted:
        await site.back(site.lander, "the lander")
    else:
        await asyncio.sleep(chance.uniform(*DOWN_S))
        site.landing.mkdir()
    await site.back(site.job, JOB)


async def old_tables(site: ReceiptsSite, chance: random.Random) -> None:
    """The tables are put back to a copy of some seconds ago. The landing files since then are still there."""
    assert site.job is not None
    copy = site.folder / "copy"
    await site.stop(site.job, JOB)
    if site.tables.exists():
        shutil.copytree(site.tables, copy)
    await site.back(site.job, JOB)
    await asyncio.sleep(chance.uniform(*AGES_S))
    await site.stop(site.job, JOB)
    if copy.exists():
        shutil.rmtree(site.tables)
        copy.rename(site.tables)
    await site.back(site.job, JOB)


async def kill_gateway(site: ReceiptsSite, chance: random.Random) -> None:
    """The gateway is killed (SIGKILL), and starts again."""
    await faults.kill(site.gateway, chance, DOWN_S)


async def kill_lander(site: ReceiptsSite, chance: random.Random) -> None:
    """The lander is killed (SIGKILL), and starts again."""
    await faults.kill(site.lander, chance, DOWN_S)


async def kill_job(site: ReceiptsSite, chance: random.Random) -> None:
    """The job is killed (SIGKILL) at any step, and starts again."""
    assert site.job is not None
    await faults.kill(site.job, chance, DOWN_S)


FAULTS: Faults[ReceiptsSite] = faults_in(globals())
