"""Lines and sentences over a serial port: stored once, and what was not read is told."""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.config.connectors import LineConfig, NmeaConfig
from gateway.config.schema import StoreConfig
from gateway.connectors.line import LineReader, LineReadings
from tests.gateway.connectors.support import cable, configured, connecting, gateway, next_of, next_with
from tests.gateway.support import connected, running, subscribed, until
from tools.lab.testing.client import Client

GGA = b"$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47\r\n"


class Sender:
    """A device that sends lines."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY)

    def send(self, data: bytes) -> None:
        os.write(self._descriptor, data)

    def close(self) -> None:
        os.close(self._descriptor)


@contextlib.contextmanager
def sender(path: str) -> Iterator[Sender]:
    one = Sender(path)
    try:
        yield one
    finally:
        one.close()


async def in_step(device: Sender, client: Client) -> None:
    """Sends numbers until one arrives."""
    number = 0
    task = asyncio.create_task(next_of(client))
    while not task.done():
        device.send(b"0\n")
        number += 1
        await asyncio.wait((task,), timeout=0.05)


async def test_each_line_is_a_message_with_the_gateways_identity(tmp_path: Path) -> None:
    rule = {"pattern": r"T=(?P<temperature>\S+)", "units": {"temperature": "Cel"}}
    async with cable() as line:
        config = configured(LineConfig, port=line.near, rule=[rule])
        async with gateway(tmp_path, config) as (_, client):
            with sender(line.far) as device:
                await in_step(device, client)
                for number in range(300):
                    device.send(b"T=%d.5\r\n" % number)
                found = [await next_with(client, ["temperature"]) for number in range(300)]
    assert [one["temperature"] for one in found] == [number + 0.5 for number in range(300)]


async def test_what_is_wrong_with_a_line_is_told_and_the_next_one_is_read(tmp_path: Path) -> None:
    async with cable() as line:
        config = configured(LineConfig, port=line.near, longest=64)
        async with gateway(tmp_path, config) as (connectors, client):
            with sender(line.far) as device:
                await in_step(device, client)
                device.send(b"x" * 5000 + b"\n" + b"\xff\xfe\n42\n")
                assert await next_with(client, ["line.error"]) == {"line.error": "a line of more than 64 bytes"}
                assert await next_of(client) == {"line": "\ufffd\ufffd"}
                assert await next_of(client) == {"line": 42}
            assert connectors.states()[0].units[0].errors == 1


async def test_a_sentence_with_a_wrong_checksum_gives_an_error_and_no_values(tmp_path: Path) -> None:
    async with cable() as line:
        config = configured(NmeaConfig, port=line.near, sentences=["GGA"])
        async with gateway(tmp_path, config) as (_, client):
            with sender(line.far) as device:
                wait = asyncio.create_task(next_with(client, ["gga.quality"]))
                while not wait.done():
                    device.send(GGA)
                    await asyncio.wait((wait,), timeout=0.05)
                device.send(GGA.replace(b"545.4", b"945.4"))
                assert "a wrong checksum" in (await next_with(client, ["line.error"]))["line.error"]


async def test_a_port_that_was_unplugged_is_a_gap(tmp_path: Path) -> None:
    stable = tmp_path / "port"
    async with cable() as first, cable() as second:
        stable.symlink_to(first.near)
        config = configured(LineConfig, port=str(stable))
        (tmp_path / "store").mkdir()
        async with gateway(tmp_path / "store", config) as (connectors, client):
            with sender(first.far) as device:
                await in_step(device, client)
                device.send(b"7\n")
                await next_with(client, ["line"])
            stable.unlink()
            unplugged_s = time.time()
            first.hang_up()
            await until(lambda: connectors.states()[0].problem, "the port is gone")
            stable.symlink_to(second.near)
            with sender(second.far) as device:
                found = asyncio.create_task(next_with(client, ["gap.from"]))
                while not found.done():
                    device.send(b"8\n")
                    await asyncio.wait((found,), timeout=0.05)
                gap = await found
                assert gap["gap.from"] <= unplugged_s <= gap["gap.to"]
                device.send(b"8\n")
                assert (await next_of(client))["line"] == 8


async def test_the_time_between_two_runs_is_a_gap_and_no_line_is_stored_twice(tmp_path: Path) -> None:
    async with cable() as line:
        config = configured(LineConfig, port=line.near)
        with sender(line.far) as device:
            async with gateway(tmp_path, config) as (_, client):
                await in_step(device, client)
                device.send(b"7\n")
                while await next_of(client) != {"line": 7}:
                    pass
            ended_s = time.time()
            async with running(tmp_path) as broker:
                client = await subscribed(broker, "second", "#", options=0)
                device.send(b"8\n")
                async with connecting(broker, config):
                    found = asyncio.create_task(next_of(client))
                    while not found.done():
                        device.send(b"9\n")
                        await asyncio.wait((found,), timeout=0.05)
                    gap = await found
                    assert gap["gap.from"] <= ended_s <= gap["gap.to"]
                    device.send(b"9\n")
                    assert await next_of(client) == {"line": 9}


async def test_what_a_full_store_did_not_take_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.connectors.keeping.WAITING_MAX", 4_000)
    full = StoreConfig(str(tmp_path), max_messages=50, when_full="reject_incoming")
    async with cable() as line, running(tmp_path, store=full) as broker:
        keeper = await subscribed(broker, "keeper", "#")  # acknowledges nothing
        config = configured(LineConfig, port=line.near)
        async with connecting(broker, config) as connectors:
            with sender(line.far) as device:
                await in_step(device, keeper)
                while not connectors.states()[0].problem:
                    device.send(b"1\n")
                    await asyncio.sleep(0.005)
                for _ in range(100):  # more than may wait
                    device.send(b"2\n")
                    await asyncio.sleep(0.001)
                full_s = time.time()
                client = await subscribed(broker, "after", "#", options=0)
                keeper.line.close()
                await (await connected(broker, "keeper", clean_start=True)).disconnect()
                found = asyncio.create_task(next_with(client, ["gap.from"]))
                while not found.done():
                    device.send(b"9\n")
                    await asyncio.wait((found,), timeout=0.05)
                gap = await found
                assert gap["gap.from"] <= full_s <= gap["gap.to"]


async def test_a_connector_that_fails_begins_again_and_leaves_the_others_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.connectors.connectors.BEGIN_AGAIN_S", 0.05)
    read, failures = LineReader.read, [ZeroDivisionError()]

    def fail_once(reader: LineReader, line: bytes) -> LineReadings:
        if line == b"13" and failures:
            raise failures.pop()
        return read(reader, line)

    monkeypatch.setattr(LineReader, "read", fail_once)
    async with cable() as first, cable() as second:
        configs = [configured(LineConfig, name=name, port=line.near) for name, line in (("a", first), ("b", second))]
        async with gateway(tmp_path, *configs) as (_, client):
            with sender(first.far) as fails, sender(second.far) as goes_on:
                await in_step(goes_on, client)
                while failures:
                    fails.send(b"1\n13\n")
                    await asyncio.sleep(0.02)
                goes_on.send(b"7\n")
                while await next_of(client) != {"line": 7}:
                    pass
                back = asyncio.create_task(next_with(client, ["line"]))
                while not back.done() or back.result() != {"line": 13}:
                    if back.done():
                        back = asyncio.create_task(next_with(client, ["line"]))
                    fails.send(b"13\n")
                    await asyncio.wait((back,), timeout=0.05)
