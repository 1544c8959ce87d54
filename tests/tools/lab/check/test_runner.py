"""Whatever a broker answers, each check ends with an outcome."""

import asyncio
import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable

import pytest

from tools.lab.check.chapters import load
from tools.lab.check.outcome import Outcome
from tools.lab.check.runner import run, run_one
from tools.lab.check.subject import Address, Broker
from tools.lab.check.suite import VERSIONS
from wire.codec.packets import MQTT_5, Connack, Puback, Publish, Suback, encode
from wire.properties import SERVER_KEEP_ALIVE

CONNACKS = encode(Connack(False)), encode(Connack(False), 4)
HALF_A_PACKET = encode(Publish("a", b"x" * 100))[:50]
UNASKED = encode(Suback(1, [0])) + encode(Puback(1)) + encode(Publish("hfcheck/x", b"", 1, packet_identifier=1))


ANSWERS: dict[str, Callable[[random.Random], bytes]] = {
    "silent": lambda _dice: b"",
    "noisy": lambda dice: dice.randbytes(dice.randrange(1, 60)),
    "cut_off": lambda dice: dice.choice(CONNACKS) + HALF_A_PACKET,
    "unasked": lambda dice: dice.choice(CONNACKS) + UNASKED,
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_a_broker_that_answers_nonsense_and_goes_breaks_checks_and_not_the_suite(
    answer: Callable[[random.Random], bytes], seed: int
) -> None:
    dice = random.Random(seed)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(answer(dice))
        writer.close()

    async def check() -> list[Outcome]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            return await run(load(), Address("127.0.0.1", server.sockets[0].getsockname()[1], "user", b"password"))

    outcomes = await check()
    assert len(outcomes) == len(load())
    broken = [one for one in outcomes if one.result == "fail"]
    assert len(broken) > len(outcomes) // 2
    assert [one.came for one in broken if "Traceback" in one.came or not one.expected] == []


def serve_keep_alives(server: socket.socket, stall: Callable[[], None]) -> None:
    """A broker that ends each connection 1.5 keep alives, of 1 s each, after its CONNECT."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                ends_s = time.monotonic() + 1.5
                stall()
                connection.sendall(encode(Connack(False, 0, {SERVER_KEEP_ALIVE: 1}), MQTT_5))
                time.sleep(max(0.0, ends_s - time.monotonic()))


async def test_a_client_that_is_slow_to_read_counts_no_silence_as_shorter_than_it_was() -> None:
    loop, stalled = asyncio.get_running_loop(), threading.Event()

    def stand_still() -> None:
        stalled.set()
        time.sleep(1.0)

    def stall() -> None:
        loop.call_soon_threadsafe(stand_still)
        stalled.wait()

    (check,) = (one for one in load() if one.name.startswith("silence_of_one_and_a_half") and one.version == "5")
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve_keep_alives, args=(server, stall))
        thread.start()
        outcome = await run_one(check, Broker(Address(*server.getsockname()), VERSIONS[check.version]))
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert (outcome.result, outcome.came) == ("pass", "")
