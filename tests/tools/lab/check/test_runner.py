"""Whatever a broker answers, each check ends with an outcome."""

import asyncio
import random
from collections.abc import Callable

import pytest

from tools.lab.check.outcome import Outcome
from tools.lab.check.runner import run
from tools.lab.check.subject import Address
from tools.lab.check.suite import load
from wire.codec.packets import Connack, Puback, Publish, Suback, encode

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
