"""What a route sends in batches lands as what it sends one by one."""

import asyncio
import random
from pathlib import Path
from typing import Any

from gateway.message import Message
from tests.cloud.landing.running_lander import RunningLander, landed
from tests.uplink.support import opened, route_config, running, until
from tools.lab.testing.mosquitto import mosquitto
from wire.properties import CONTENT_TYPE, USER_PROPERTY
from wire.route_numbers import VIA_PROPERTY

COUNT = 700
ROUTES = {"one-by-one": "central", "batched": "batched"}
PROPERTIES: tuple[dict[int, Any], ...] = (
    {},
    {CONTENT_TYPE: "application/senml+json"},
    {CONTENT_TYPE: "x/y", USER_PROPERTY: [("a", "b")]},
    {USER_PROPERTY: [(VIA_PROPERTY, "00000007/12/gateway-0/up")]},
)


def message(dice: random.Random, number: int) -> Message:
    fields: dict[str, Any] = {"received_ms": 1_767_225_600_000 + 3 * number, "received_by": "gateway-1"}
    if number % 3:  # the others get identities of the store
        fields |= {"origin": "roof", "epoch": 7, "seq": number}
    payload = dice.randbytes(dice.choice((0, 3, 40)))
    return Message(
        f"telemetry/{dice.choice('abc')}", payload, dice.choice((1, 1, 2)), properties=dice.choice(PROPERTIES), **fields
    )


async def test_messages_in_batches_and_one_by_one_land_as_equal_rows(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    found = []
    with mosquitto(tmp_path) as port:
        landers = {
            "one-by-one": RunningLander(port, tmp_path / "one-by-one", "one-by-one", topic_filter="telemetry/#"),
            "batched": RunningLander(port, tmp_path / "batched", "batched", topic_filter="holdfast/batch/#"),
        }
        one_by_one = route_config(port)
        batched = route_config(port, name="batched", framing="batch", batch_max_messages=100)
        async with opened(tmp_path) as log, running(log, one_by_one), running(log, batched):
            for lander in landers.values():
                await asyncio.to_thread(lander.wait_for, "connected")
            await asyncio.gather(*(log.submit([message(dice, number)]) for number in range(COUNT)))
            for name in landers:
                await until(lambda name=name: len(landed(tmp_path / name)) == COUNT)  # type: ignore[misc]
            await until(lambda: log.space.needed_from == COUNT)
        for name, lander in landers.items():
            await asyncio.to_thread(lander.stop)
            rows = landed(tmp_path / name)
            assert all(row.pop("landed_ms") and row.pop("lander") == name for row in rows)
            own = [row["via"].pop() for row in rows]
            assert {(one["gateway"], one["route"]) for one in own} == {("gateway-1", ROUTES[name])}
            for row, one in zip(rows, own, strict=True):
                row["number"] = one["number"]
            assert sorted(one["number"] for one in own) == [*range(1, COUNT + 1)]
            found.append(sorted(rows, key=str))
    assert found[0] == found[1]
