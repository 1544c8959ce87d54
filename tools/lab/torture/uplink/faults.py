"""The faults of a route's torture. Each takes the site and its own chance, and returns when it is over."""

import asyncio
import contextlib
import random
import ssl
import time

from tools.lab.testing.certificates import Authority
from tools.lab.testing.client import end_session
from tools.lab.torture import faults
from tools.lab.torture.faults import NEVER_S
from tools.lab.torture.publisher import TOPIC
from tools.lab.torture.strikes import Faults, faults_in
from tools.lab.torture.uplink.site import RouteSite

TEN_YEARS_S = 10 * 365.25 * 24 * 3600
CUT_BYTES_MAX = 40_000
DOWN_S = (0.02, 0.2)
SILENT_S = (0.2, 2.5)  # the route's keep alive is 1 s
FROZEN_S = (0.2, 2.5)
SLOW_S = (0.3, 1.2)
DELAYS_S = (0.02, 0.3)
RATES = (2_000, 50_000)  # bytes a second
INTERVAL_S = 0.02
BEHIND_S = 0.3
KILL_AFTER_S = (0, 0.03)  # from the first of the messages that flow meanwhile
FULL_BYTES = (0, 4096, 65_536, 1_000_000)
PAGE_SIZE_AT = 16  # in the header of an SQLite file, in two bytes
GIBBERISH = (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x20\x02\x00", b"\xd0\x00" * 1000, bytes(100))


async def cut(site: RouteSite, chance: random.Random) -> None:
    """The line breaks after any byte, several times in a row."""
    await faults.flap(site.link, chance, CUT_BYTES_MAX, DOWN_S)


async def delay(site: RouteSite, chance: random.Random) -> None:
    """Every byte is late."""
    await site.link.slow(chance.uniform(*SLOW_S), chance.uniform(*DELAYS_S))


async def throttle(site: RouteSite, chance: random.Random) -> None:
    """The line carries few bytes a second."""
    size = max(1, int(INTERVAL_S * chance.uniform(*RATES)))
    await site.link.slow(chance.uniform(*SLOW_S), INTERVAL_S, size)


async def silence(site: RouteSite, chance: random.Random) -> None:
    """Nothing comes through in one direction or in both, and no connection ends: a line that is half open."""
    await faults.hush(site.link, chance, SILENT_S)


async def corrupt(site: RouteSite, chance: random.Random) -> None:
    """A byte changes on the way. The route speaks TLS: over TCP alone neither end can notice it."""
    site.link.corrupt_after(chance.randint(0, CUT_BYTES_MAX))
    await asyncio.sleep(chance.uniform(*DOWN_S))


async def misdirect(site: RouteSite, chance: random.Random) -> None:
    """The broker's name leads to another server for a while, that speaks no MQTT or has no right certificate."""
    received: list[bytes] = []
    answer = chance.choice(GIBBERISH)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):  # the route may go before it is answered
            received.append(await reader.read(1000))
        writer.write(answer)
        writer.close()

    context = None
    if site.authority is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*Authority(site.gateway.folder / "stranger", "stranger").server())
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    right, site.link.far_end = site.link.far_end, server.sockets[0].getsockname()[:2]
    await site.link.cut()
    await site.link.open()
    await asyncio.sleep(chance.uniform(*SLOW_S))
    site.link.far_end = right
    await site.link.cut()
    server.close()
    await site.link.open()
    if context is not None and any(received):
        site.violations.append("the route sent something to a server without the right certificate")


async def kill(site: RouteSite, chance: random.Random) -> None:
    """The gateway is killed (SIGKILL), and starts again."""
    await faults.kill(site.gateway, chance, DOWN_S, KILL_AFTER_S)


async def freeze(site: RouteSite, chance: random.Random) -> None:
    """The gateway stands still (SIGSTOP) and goes on."""
    await faults.freeze(site.gateway, chance, FROZEN_S)


async def restart(site: RouteSite, chance: random.Random) -> None:
    """The next broker is interrupted: a gateway is killed, mosquitto is stopped."""
    await asyncio.sleep(chance.uniform(*KILL_AFTER_S))
    await site.next.interrupt()


async def stall(site: RouteSite, chance: random.Random) -> None:
    """The next broker stands still (SIGSTOP) and goes on."""
    await faults.freeze(site.next, chance, FROZEN_S)


async def forget(site: RouteSite, chance: random.Random) -> None:
    """The next broker loses the route's session. What was in flight may come twice, with the same identity."""
    await end_session(site.next.port, site.session)
    site.repeatable |= site.sent()


async def full(site: RouteSite, chance: random.Random) -> None:
    """The gateway's disk is full for a while."""
    site.gateway.limit_files(chance.choice(FULL_BYTES))
    await asyncio.sleep(chance.uniform(*SLOW_S))
    site.gateway.limit_files(-1)


async def _fall_behind(site: RouteSite) -> None:
    """Stores messages that the next broker has not acknowledged: what it sends does not come through. None is in flight
    to the gateway, so that none is stored by two disks."""
    await site.link.cut()
    await site.link.open()
    silence = asyncio.create_task(site.link.slow(BEHIND_S, NEVER_S, ways=(False,)))
    await site.settled()
    await silence


async def page(site: RouteSite, chance: random.Random) -> None:
    """A page of the gateway's store is destroyed while it is off, and `gateway repair` saves the rest. It is one with
    messages, where any are in the database and not only in its WAL."""
    await _fall_behind(site)
    site.gateway.kill()
    site.repeatable |= site.sent()
    site.is_damaged = True
    data = site.gateway.messages.read_bytes()
    size = int.from_bytes(data[PAGE_SIZE_AT : PAGE_SIZE_AT + 2], "big")
    places = range(size, len(data), size)
    places_of_messages = [place for place in places if TOPIC.encode() in data[place : place + size]]
    place = chance.choice(places_of_messages or places)
    site.gateway.messages.write_bytes(data[:place] + chance.randbytes(size) + data[place + size :])
    await site.repair()
    await site.gateway.up()


async def renew(site: RouteSite, chance: random.Random) -> None:
    """The gateway gets a new disk, and the next broker has the session of the old one. What was stored on the old disk
    and had not gone on is lost; nothing behind it may be."""
    await _fall_behind(site)
    site.gateway.kill()
    site.excused |= site.sent()
    site.lose_store()
    await site.gateway.up()


async def jump(site: RouteSite, chance: random.Random) -> None:
    """The gateway's clock jumps by ten years and back."""
    site.clock.set(chance.choice((1, -1)) * TEN_YEARS_S)
    await asyncio.sleep(chance.uniform(*SLOW_S))
    site.clock.set(0.0)


async def no_clock(site: RouteSite, chance: random.Random) -> None:
    """The gateway starts without a clock, in 1970, and gets the time later."""
    site.gateway.kill()
    site.clock.set(-time.time())
    await site.gateway.up()
    await asyncio.sleep(chance.uniform(*SLOW_S))
    site.clock.set(0.0)


FAULTS: Faults[RouteSite] = faults_in(globals())
SECURE_ONLY = {"corrupt"}
