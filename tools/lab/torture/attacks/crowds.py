"""Attacks by thousands of clients that do nothing alone: what they have left falls due at one moment, or they read
nothing.
"""

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import Awaitable, Callable

from tools.lab.torture.attacks.line import connected, deaf
from wire.codec.packets import MQTT_5, Connect, Publish, Subscribe, Will, encode
from wire.properties import SESSION_EXPIRY_INTERVAL, WILL_DELAY_INTERVAL

SESSIONS = 9_900  # a gateway takes 10,000
DUE_IN_S = 25  # behind the first of a crowd; sessions that have not come by then stay away
CONNECTIONS = 1_900  # an address may have 2,000
AT_ONCE = 20  # connections of a crowd that come together
NEVER_S = 0xFFFF_FFFF
LARGE = 1_000_000  # bytes of a retained message
RETAINED = 50  # such messages
DEAF = 400


async def _crowd(port: int, connect: Callable[[int, int], Connect], topic_filter: str = "") -> None:
    """Has a crowd come and go. ``connect`` returns the CONNECT of one, by its number and the seconds until the moment.
    Each subscribes to a filter of its own below ``topic_filter``, if there is one.
    """
    due_s = time.monotonic() + DUE_IN_S
    numbers = iter(range(SESSIONS))

    async def come() -> None:
        for number in numbers:
            if (left_s := due_s - time.monotonic()) < 1:
                return
            with contextlib.suppress(OSError):
                async with connected(port, packet=encode(connect(number, math.ceil(left_s)))) as line:
                    if topic_filter:
                        await line.write(encode(Subscribe(1, [(f"{topic_filter}/{number}", 1)], {}), MQTT_5))
                        await line.answered(6)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(come())
    await asyncio.sleep(max(0.0, due_s - time.monotonic()))


async def expiries(port: int) -> None:
    """Sessions with a subscription that all expire within one second."""

    def connect(number: int, left_s: int) -> Connect:
        return Connect(f"expires-{number}", False, 0, None, None, None, {SESSION_EXPIRY_INTERVAL: left_s})

    while True:
        await _crowd(port, connect, "expiries")


async def delayed_wills(port: int) -> None:
    """Sessions that stay, with wills whose delays all end within one second."""

    def connect(number: int, left_s: int) -> Connect:
        will = Will(f"wills/{number}", b"x" * 100, 1, False, {WILL_DELAY_INTERVAL: left_s})
        return Connect(f"wills-{number}", False, 0, None, None, will, {SESSION_EXPIRY_INTERVAL: NEVER_S})

    while True:
        await _crowd(port, connect)


async def leaving(port: int) -> None:
    """As many connections as one address may have, with wills and subscriptions, that all end at one moment."""
    will = Will("leaving", b"x" * 100, 1, False, {})
    while True:
        async with contextlib.AsyncExitStack() as clients:
            for number in range(CONNECTIONS):
                line = await clients.enter_async_context(connected(port, f"leaves-{number}", stays=True, will=will))
                await line.write(encode(Subscribe(1, [(f"leaving/{number}", 1)], {}), MQTT_5))
            await line.answered(6)
        await asyncio.sleep(1)


async def deaf_to_retained(port: int) -> None:
    """Clients that subscribe to retained messages of a megabyte and read nothing."""
    async with connected(port, "retains") as line:
        for number in range(RETAINED):
            packet = Publish(f"large/{number}", bytes(LARGE), 1, True, packet_identifier=1)
            await line.write(encode(packet, MQTT_5))
            await line.answered(4)
    await _listen(port, lambda number: f"large/{number % RETAINED}/#" if number % 2 else "large/#")


async def deaf_to_live(port: int) -> None:
    """Clients that subscribe and read nothing, and large messages of QoS 0 and 1 for each of them alone."""

    async def talk() -> None:
        async with connected(port, "talks") as line:
            for number in itertools.cycle(range(DEAF)):
                await line.write(encode(Publish(f"large/{number}", bytes(LARGE), 0), MQTT_5))
                await line.write(encode(Publish(f"large/{number}", bytes(LARGE), 1, packet_identifier=1), MQTT_5))
                await line.answered(4)

    async with asyncio.TaskGroup() as group:
        group.create_task(_listen(port, lambda number: f"large/{number}"))
        group.create_task(talk())


async def _listen(port: int, topic_filter: Callable[[int], str]) -> None:
    async with contextlib.AsyncExitStack() as clients:
        for number in range(DEAF):
            subscribe = encode(Subscribe(1, [(topic_filter(number), 1)], {}), MQTT_5)
            await clients.enter_async_context(deaf(port, f"deaf-{number}", subscribe))
        await asyncio.Event().wait()


CROWDS: dict[str, Callable[[int], Awaitable[None]]] = {
    attack.__name__.replace("_", "-"): attack
    for attack in (expiries, delayed_wills, leaving, deaf_to_retained, deaf_to_live)
}
