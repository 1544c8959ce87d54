"""Units are polled over a serial line, beside the faults of real ones: no value of another unit, or of another time."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.config.connectors import ModbusRtuConfig
from gateway.connectors import polling
from gateway.connectors.connectors import Connectors
from gateway.connectors.keeping import GAP_FROM
from gateway.connectors.wire import now_ms
from gateway.store import MessageLog
from tests.gateway.connectors.support import cable, configured, connecting, gateway, next_of, next_with, unit_of
from tests.gateway.support import running, until
from tools.lab.sim.modbus_units import SimulatedUnit, SimulatedUnits, register_of
from tools.lab.testing.client import Client

A_VALUE = {"name": "a", "address": 1}


def unit(address: int, **keys: Any) -> dict[str, Any]:
    own = {"value": [A_VALUE], "interval_s": 0.05, "timeout_s": 0.2, "backoff_s": 0.1}
    return {"device": f"unit-{address}", "address": address, **own, **keys}


@contextlib.asynccontextmanager
async def polled(
    folder: Path, units: list[SimulatedUnit], configs: list[dict[str, Any]], **keys: Any
) -> AsyncIterator[tuple[SimulatedUnits, Connectors, Client]]:
    async with cable() as line:
        config = configured(ModbusRtuConfig, port=line.near, unit=configs, baud=115_200, **keys)
        far = SimulatedUnits(line.far, units)
        try:
            async with gateway(folder, config) as (connectors, client):
                yield far, connectors, client
        finally:
            far.close()


async def test_values_of_a_unit_come_in_one_message(tmp_path: Path) -> None:
    values = [
        A_VALUE,
        {"name": "b", "address": 2, "scale": 0.1, "unit": "V"},
        {"name": "c", "address": 9, "table": "input"},
    ]
    async with polled(tmp_path, [SimulatedUnit(3)], [unit(3, value=values)]) as (_, _, client):
        found = await next_of(client)
    assert found == {"a": register_of(3, 1), "b": register_of(3, 2) / 10, "c": register_of(3, 9)}


async def test_a_dead_unit_is_told_and_delays_no_other(tmp_path: Path) -> None:
    units = [SimulatedUnit(1), SimulatedUnit(2, is_dead=True)]
    async with polled(tmp_path, units, [unit(1), unit(2)]) as (_, connectors, client):
        assert await next_with(client, ["poll.error"]) == {"poll.error": "no answer"}
        for _ in range(20):
            assert await next_with(client, ["a"]) == {"a": register_of(1, 1)}
        units[1].is_dead = False
        while (await next_with(client, ["a"]))["a"] != register_of(2, 1):
            pass
        counts = {one.device: one for one in connectors.states()[0].units}
        assert (counts["unit-1"].errors, counts["unit-1"].silences) == (0, 0)
        assert counts["unit-2"].silences


async def test_a_unit_whose_answers_are_all_corrupt_is_asked_ever_more_rarely(tmp_path: Path) -> None:
    """As one at a wrong speed: each attempt holds the line until it is quiet again."""
    corrupt, healthy = SimulatedUnit(2, cut=3), SimulatedUnit(1)
    configs = [unit(1, interval_s=0.3), unit(2, interval_s=0.3, backoff_s=60)]
    async with polled(tmp_path, [healthy, corrupt], configs) as (_, connectors, client):
        await until(lambda: corrupt.asked >= 6, "it was given its chances")
        asked, before = corrupt.asked, healthy.asked
        await until(lambda: healthy.asked >= before + 10, "the other one is polled")
        assert corrupt.asked - asked <= 5
        corrupt.cut = 0
        while (await next_with(client, ["a"]))["a"] != register_of(2, 1):
            pass
        assert unit_of(connectors, "unit-2").corrupt >= 4


async def test_an_answer_that_comes_late_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    slow = SimulatedUnit(1)
    async with polled(tmp_path, [slow], [unit(1, timeout_s=0.05)]) as (_, _, client):
        assert (await next_with(client, ["a"]))["a"] == register_of(1, 1)
        slow.written[1] = 11
        slow.late_s = 0.3  # behind the timeout: the answer with 11 comes to later requests
        await next_with(client, ["poll.error"])
        slow.written[1] = 22
        slow.late_s = 0.0
        seen = [await next_of(client) for _ in range(5)]
        values = [one["a"] for one in seen if "a" in one]
        assert 11 not in values


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"answers_as": 7}, "no answer to the request in"),
        ({"cut": 3}, "no answer to the request in"),
        ({"exception": 2}, "exception 2: illegal data address"),
        ({"exception": 11}, "exception 11: gateway target device failed to respond"),
    ],
)
async def test_what_is_no_answer_is_told(tmp_path: Path, fault: dict[str, int], error: str) -> None:
    wrong = SimulatedUnit(1, **fault)  # type: ignore[arg-type]
    async with polled(tmp_path, [wrong, SimulatedUnit(2)], [unit(1), unit(2)]) as (_, _, client):
        assert (await next_with(client, ["poll.error"]))["poll.error"].startswith(error)
        assert await next_with(client, ["a"]) == {"a": register_of(2, 1)}
        wrong.answers_as = wrong.exception = None
        wrong.cut = 0
        while (await next_with(client, ["a"]))["a"] != register_of(1, 1):
            pass


async def test_no_bit_error_and_no_noise_gives_a_wrong_value(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)

    def spoil(data: bytes) -> bytes:
        flipped = bytes(byte ^ (1 << dice.randrange(8) if dice.random() < 0.02 else 0) for byte in data)
        return dice.randbytes(dice.randrange(3)) + flipped if dice.random() < 0.1 else flipped

    values = [{"name": f"v{address}", "address": address} for address in range(10)]
    async with cable() as line:
        units = [unit(address, value=values, interval_s=0.02, timeout_s=0.05) for address in (1, 2, 3)]
        config = configured(ModbusRtuConfig, port=line.near, unit=units, baud=115_200)
        far = SimulatedUnits(line.far, [SimulatedUnit(address) for address in (1, 2, 3)], spoil)
        async with gateway(tmp_path, config) as (connectors, client):
            for _ in range(200):
                packet = await client.receive()
                device = int(packet.topic[-1])
                for name, value in _values(packet.payload).items():
                    if name.startswith("v"):
                        assert value == register_of(device, int(name[1:])), packet.payload
            assert sum(one.corrupt for one in connectors.states()[0].units) > 0
        far.close()


def _values(payload: bytes) -> dict[str, Any]:
    return {one["n"]: one.get("v", one.get("vs")) for one in json.loads(payload)}


async def test_a_value_within_its_dead_band_is_not_stored(tmp_path: Path) -> None:
    values = [{**A_VALUE, "dead_band": 5}, {"name": "b", "address": 2, "interval_s": 0.2}]
    one = SimulatedUnit(1)
    async with polled(tmp_path, [one], [unit(1, value=values)]) as (_, _, client):
        base = register_of(1, 1)
        one.written[1] = base
        assert (await next_with(client, ["a"]))["a"] == base
        one.written[1] = base + 5
        assert await next_of(client) == {"b": register_of(1, 2)}
        asked = one.asked
        while one.asked < asked + 5:
            await asyncio.sleep(0.01)
        one.written[1] = base + 6
        assert (await next_with(client, ["a"]))["a"] == base + 6


async def test_the_time_between_two_runs_is_a_gap_of_each_unit(tmp_path: Path) -> None:
    units = [SimulatedUnit(1), SimulatedUnit(2)]
    for run in range(2):
        async with polled(tmp_path, units, [unit(1), unit(2)]) as (_, _, client):
            if run:
                first, second = await next_with(client, [GAP_FROM]), await next_with(client, [GAP_FROM])
                assert first["gap.from"] <= first["gap.to"] and second["gap.from"] <= second["gap.to"]
            else:
                await next_with(client, ["a"])
                await next_with(client, ["a"])


async def test_what_was_read_is_on_the_disk_before_more_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, grown = SimulatedUnit(1), list[int]()
    submit = MessageLog.submit

    def submit_to_a_slow_disk(log: MessageLog, works: Any) -> "asyncio.Future[list[Any]]":
        async def write() -> list[Any]:
            asked = one.asked
            await asyncio.sleep(0.15)  # three intervals
            written = await submit(log, works)
            grown.append(one.asked - asked)
            return written

        return asyncio.ensure_future(write())

    monkeypatch.setattr(MessageLog, "submit", submit_to_a_slow_disk)
    async with polled(tmp_path, [one], [unit(1)]) as (_, _, client):
        for _ in range(5):
            assert await next_of(client) == {"a": register_of(1, 1)}
    assert max(grown) <= 1  # the next request is on its way, and its answer is not read


async def test_a_clock_that_was_set_back_stops_no_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_year_ms, one = 31_536_000_000, SimulatedUnit(1)
    monkeypatch.setattr(polling, "now_ms", lambda: now_ms() + a_year_ms)
    async with cable() as line, running(tmp_path) as broker:
        far = SimulatedUnits(line.far, [one])
        config = configured(ModbusRtuConfig, port=line.near, unit=[unit(1, value=[{**A_VALUE, "dead_band": 5}])])
        async with connecting(broker, config):
            await until(lambda: one.asked > 3, "it is polled")
            monkeypatch.setattr(polling, "now_ms", now_ms)
            asked = one.asked
            await until(lambda: one.asked > asked + 3, "it is polled by the new clock")
        far.close()
    async with running(tmp_path) as broker:
        assert broker.log.found.read_to["hall/unit-1"] < now_ms() + 60_000


async def test_a_unit_that_does_not_answer_is_a_note_and_a_port_that_is_gone_a_problem(tmp_path: Path) -> None:
    async with cable() as line, running(tmp_path) as broker:
        config = configured(ModbusRtuConfig, port=line.near, unit=[unit(1)])
        async with connecting(broker, config) as connectors:
            broker.overview.connectors = connectors.states
            await until(lambda: broker.overview.notes(), "the unit is silent")
            assert broker.overview.notes() == ["connector hall: unit-1: no answer"]
            assert broker.overview.problems() == []
            line.hang_up()
            await until(lambda: broker.overview.problems(), "the port is gone")
            assert broker.overview.problems()[0].startswith("connector hall: ")
