"""The faults behind a route that waits for receipts. Each takes the site and its own chance, and returns when it is
over."""

import asyncio
import random
import shutil

from tools.lab.torture import faults
from tools.lab.torture.receipts.site import JOB
from tools.lab.torture.receipts.tortured import TorturedSite
from tools.lab.torture.strikes import Faults, faults_in

DOWN_S = (0.05, 0.5)
PILE_S = 1.0  # meanwhile messages gather where they are about to be lost
LANDED_S = 15.0
AGE_MAX = 2  # runs of the job since a copy of the tables


async def broker_store(site: TorturedSite, chance: random.Random) -> None:
    """The broker loses its store, with messages for the lander in it."""
    await site.stop(site.lander, "the lander")
    await asyncio.sleep(PILE_S)
    await site.lose_central_store()
    await asyncio.sleep(chance.uniform(*DOWN_S))
    await site.broker.up()
    await site.back(site.lander, "the lander")


async def kill_broker(site: TorturedSite, chance: random.Random) -> None:
    """The broker is killed: it has acknowledged what it has not written."""
    await faults.kill(site.broker, chance, DOWN_S)


async def landing_file(site: TorturedSite, chance: random.Random) -> None:
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


async def landing_folder(site: TorturedSite, chance: random.Random) -> None:
    """The whole landing folder goes before the job has read all of it. An operator makes an empty one, or starts the
    lander again, which makes one."""
    assert site.job is not None
    await site.stop(site.job, JOB)
    await _lose_landing_folder(site, chance)


async def first_landing_folder(site: TorturedSite, chance: random.Random) -> None:
    """The whole landing folder goes before the job has read any of it: the job starts for the first time behind it."""
    await _lose_landing_folder(site, chance)


async def _lose_landing_folder(site: TorturedSite, chance: random.Random) -> None:
    assert site.job is not None
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


async def old_tables(site: TorturedSite, chance: random.Random) -> None:
    """The tables are put back to a copy that is some batches old, and the job takes the landing files since then again.
    It is over when it has: until then the landing files alone have what the tables had settled."""
    assert site.job is not None
    copy = site.folder / "copy"
    await site.stop(site.job, JOB)
    if site.tables.exists():
        shutil.copytree(site.tables, copy)
    await site.back(site.job, JOB)
    await site.job_runs(chance.randint(1, AGE_MAX))
    await site.stop(site.job, JOB)
    if copy.exists():
        shutil.rmtree(site.tables)
        copy.rename(site.tables)
    await site.back(site.job, JOB)
    await site.job_runs(1)


async def gateway_store(site: TorturedSite, chance: random.Random) -> None:
    """The gateway loses its store. Often the broker stands still before, so that it has not got what the gateway has
    acknowledged; often it loses its store too. The devices still have what no receipt has settled."""
    stands_still = chance.random() < 0.5
    if stands_still:
        site.broker.freeze()
        await asyncio.sleep(PILE_S)
    await site.lose_gateway_store()
    site.broker.thaw()
    if chance.random() < 0.3:
        await site.lose_central_store()
        await site.broker.up()
    await asyncio.sleep(chance.uniform(*DOWN_S))
    await site.back(site.gateway, "the gateway")


async def kill_device(site: TorturedSite, chance: random.Random) -> None:
    """The power of a device is cut, in the midst of a flash operation or at any moment, and comes back."""
    device = chance.choice(site.devices)
    await site.stop(device.process, device.name)
    if chance.random() < 0.5 and (violation := await device.die_in_flash(chance)):
        site.violations.append(violation)
    await asyncio.sleep(chance.uniform(*DOWN_S))
    await site.back(device.process, device.name)


async def kill_gateway(site: TorturedSite, chance: random.Random) -> None:
    """The gateway is killed (SIGKILL), and starts again."""
    await faults.kill(site.gateway, chance, DOWN_S)


async def kill_lander(site: TorturedSite, chance: random.Random) -> None:
    """The lander is killed (SIGKILL), and starts again."""
    await faults.kill(site.lander, chance, DOWN_S)


async def kill_job(site: TorturedSite, chance: random.Random) -> None:
    """The job is killed (SIGKILL) at any step, and starts again."""
    assert site.job is not None
    await faults.kill(site.job, chance, DOWN_S)


FAULTS: Faults[TorturedSite] = faults_in(globals())
