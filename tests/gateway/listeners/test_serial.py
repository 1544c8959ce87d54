"""A device at the end of a serial line: the same broker, over the link, on pseudo-terminals."""

import asyncio
import os
import random
import tty
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from gateway.config.schema import LimitsConfig, QueueConfig, SerialConfig, TcpConfig
from tests.gateway.support import LONG_S, connected, running, said_of, subscribed, until
from tools.lab.testing.client import client_connection
from tools.lab.testing.serial_line import SerialLine
from wire.codec.packets import Connack, Disconnect, Packet, Puback, Publish, Suback
from wire.errors import Closed
from wire.link import Link, LinkData, LinkDown, LinkUp

Kind = TypeVar("Kind")


class Device:
    """A device's end of the line: link and MQTT client, without retries of its own."""

    def __init__(self, port: str | int) -> None:
        self.protocol = client_connection("device")
        self.downs: list[str] = []
        self._link = Link(random.getrandbits(32))
        self._arrived = asyncio.Event()
        self._descriptor = os.open(port, os.O_RDWR | os.O_NOCTTY) if isinstance(port, str) else port
        os.set_blocking(self._descriptor, False)
        tty.setraw(self._descriptor)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read)
        self._timer: asyncio.TimerHandle | None = None
        self._link.open(self._now_ms())
        self.advance()

    def power_off(self) -> None:
        self._loop.remove_reader(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()
        os.close(self._descriptor)

    async def expect(self, kind: type[Kind]) -> Kind:
        event = await asyncio.wait_for(self._event(), LONG_S)
        assert isinstance(event, kind), f"{kind.__name__} expected, got {event!r}"
        return event

    def acknowledge(self, packet: Packet) -> None:
        """Acknowledges a message of QoS 1; other packets need no answer."""
        if isinstance(packet, Publish) and packet.packet_identifier is not None:
            self.protocol.puback(packet.packet_identifier)

    async def _event(self) -> Packet | Closed:
        while (event := self.protocol.next_event()) is None:
            self._arrived.clear()
            await self._arrived.wait()
        self.advance()
        return event

    def advance(self) -> None:
        while (event := self._link.next_event()) is not None:
            match event:
                case LinkUp():
                    self.protocol = client_connection("device")
                    self.protocol.connect(self._now_ms())
                case LinkData():
                    self.protocol.receive_data(event.data, self._now_ms())
                case LinkDown():
                    self.downs.append(event.text)
            self._arrived.set()
        if self._link.send_room and (data := self.protocol.data_to_send()):
            self._link.send(data, self._now_ms())
        while frames := self._link.data_to_send():
            os.write(self._descriptor, frames)
        if self._timer is not None:
            self._timer.cancel()
        if (timer_ms := self._link.next_timer_ms()) is not None:
            self._timer = self._loop.call_at(timer_ms / 1000, self._on_timer)

    def log(self, line: bytes) -> None:
        self._link.send_log(line)
        self.advance()

    def send(self, data: bytes) -> None:
        """Sends bytes that the protocol core would not."""
        self._link.send(data, self._now_ms())
        self.advance()

    def _on_timer(self) -> None:
        self._link.handle_timer(self._now_ms())
        self.advance()

    def _read(self) -> None:
        self._link.receive_data(os.read(self._descriptor, 4096), self._now_ms())
        self.advance()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


@asynccontextmanager
async def line() -> AsyncIterator[SerialLine]:
    cable = SerialLine()
    cable.open()
    try:
        yield cable
    finally:
        cable.close()


def listeners(path: str) -> tuple[SerialConfig, TcpConfig]:
    return SerialConfig(path), TcpConfig(port=0)


async def test_messages_go_both_ways_over_a_serial_line(tmp_path: Path) -> None:
    async with line() as cable, running(tmp_path, *listeners(cable.near)) as broker:
        device = Device(cable.far)
        assert not (await device.expect(Connack)).session_present
        client = await subscribed(broker, "client", "from/#")
        device.protocol.subscribe([("to/device", 1)])
        device.advance()
        await device.expect(Suback)
        device.protocol.publish("from/device", b"x" * 5000)
        device.advance()
        await device.expect(Puback)
        assert (await client.receive()).payload == b"x" * 5000
        client.send("to/device", b"y" * 5000)
        assert (await device.expect(Publish)).payload == b"y" * 5000
        device.power_off()


async def test_a_device_that_restarts_gets_a_new_connection_and_its_session(tmp_path: Path) -> None:
    async with line() as cable, running(tmp_path, *listeners(cable.near)) as broker:
        device = Device(cable.far)
        await device.expect(Connack)
        device.protocol.subscribe([("to/device", 1)])
        device.advance()
        await device.expect(Suback)
        device.power_off()
        client = await connected(broker, "client")
        await client.publish("to/device", b"while off")
        device = Device(cable.far)
        assert (await device.expect(Connack)).session_present
        assert (await device.expect(Publish)).payload == b"while off"
        device.power_off()


async def test_a_backlog_fits_through_a_slow_line(tmp_path: Path) -> None:
    """More than the line, the link and the port hold together comes through, in order."""
    async with line() as cable, running(tmp_path, *listeners(cable.near)) as broker:
        device = Device(cable.far)
        await device.expect(Connack)
        device.protocol.subscribe([("to/device", 1)])
        device.advance()
        await device.expect(Suback)
        client = await connected(broker, "client")
        for number in range(40):
            await client.publish("to/device", b"%d " % number + b"z" * 4000)
        for number in range(40):
            packet = await device.expect(Publish)
            assert packet.payload.startswith(b"%d " % number)
            assert packet.packet_identifier is not None
            device.protocol.puback(packet.packet_identifier)
            device.advance()
        device.power_off()


async def test_a_device_makes_room_for_what_it_publishes_to_itself(tmp_path: Path) -> None:
    """It sends as many messages as the Receive Maximum lets it before it acknowledges what it gets."""
    inflight, count = LimitsConfig().inflight, 2000
    queue = QueueConfig(max_messages=inflight, when_full="flow_control")
    async with line() as cable, running(tmp_path, *listeners(cable.near), queue=queue):
        device = Device(cable.far)
        await device.expect(Connack)
        device.protocol.subscribe([("own", 1)])
        device.advance()
        await device.expect(Suback)
        for _ in range(inflight):
            device.protocol.publish("own", b"")
        device.advance()
        came = [await device.expect(Packet) for _ in range(2 * inflight)]
        for _ in range(count):
            device.protocol.publish("own", b"")
        for packet in came:
            device.acknowledge(packet)
        device.advance()
        for _ in range(2 * count):
            device.acknowledge(await device.expect(Packet))
            device.advance()
        device.power_off()


@pytest.mark.parametrize("waiting", [0, 5])
async def test_a_device_that_breaks_the_protocol_is_told_behind_what_waits_and_may_begin_anew(
    tmp_path: Path, waiting: int
) -> None:
    async with line() as cable, running(tmp_path, *listeners(cable.near)) as broker:
        device = Device(cable.far)
        await device.expect(Connack)
        device.protocol.subscribe([("to/device", 1)])
        device.advance()
        await device.expect(Suback)
        client = await connected(broker, "client")
        for number in range(waiting):
            await client.publish("to/device", b"%d " % number + b"z" * 4000)
        old = device.protocol
        device.send(b"\xc1\x00")  # PINGREQ with flags
        await until(lambda: device.protocol is not old, "a new stream")
        events = []
        while (event := old.next_event()) is not None:
            events.append(event)
        assert [event.reason_code for event in events if isinstance(event, Disconnect)] == [0x81]
        await device.expect(Connack)
        device.power_off()


async def test_closing_the_broker_tells_the_device(tmp_path: Path) -> None:
    async with line() as cable:
        async with running(tmp_path, *listeners(cable.near)):
            device = Device(cable.far)
            await device.expect(Connack)
        assert (await device.expect(Disconnect)).reason_code == 0x8B
        await until(lambda: device.downs, "the link is down")
        device.power_off()


async def test_what_the_device_logs_is_in_the_gateways_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with line() as cable, running(tmp_path, *listeners(cable.near)):
        device = Device(cable.far)
        await device.expect(Connack)
        device.log(b"a sensor is gone\n")
        line_in_log = f"serial port {cable.near}: the device says 'a sensor is gone\\n'"
        await until(lambda: line_in_log in [record.getMessage() for record in caplog.records], "the line")
        device.power_off()


async def test_garbage_on_the_line_does_no_harm(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with line() as cable, running(tmp_path, *listeners(cable.near)):
        noise = os.open(cable.far, os.O_RDWR | os.O_NOCTTY)
        for _ in range(20):
            os.write(noise, chance.randbytes(200))
            await asyncio.sleep(0)
        os.close(noise)
        device = Device(cable.far)
        await device.expect(Connack)
        device.power_off()


async def test_a_program_that_speaks_no_link_is_said_with_a_bounded_rate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with line() as cable, running(tmp_path, *listeners(cable.near)):
        port = os.open(cable.far, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            tty.setraw(port)
            for _ in range(60):
                os.write(port, b"temperature 21.5, humidity 40\r\n")
                await asyncio.sleep(0)
            await until(lambda: said_of(caplog, "no frames on a serial line"), "the line in the log")
        finally:
            os.close(port)
        device = Device(cable.far)
        await device.expect(Connack)  # and so all of the noise was read
        device.power_off()
    (about,) = said_of(caplog, "no frames on a serial line")
    assert about["peer"] == cable.near and about["bytes"] >= 512


async def test_a_frame_that_is_corrupt_now_and_then_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with line() as cable, running(tmp_path, *listeners(cable.near)):
        port = os.open(cable.far, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        tty.setraw(port)
        os.write(port, b"\0a corrupt frame\0")
        device = Device(port)
        await device.expect(Connack)
        device.power_off()
    assert said_of(caplog, "no frames on a serial line") == []


async def test_a_port_that_is_not_there_is_reported_once_and_used_when_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "port"
    async with line() as cable, running(tmp_path / "store", *listeners(str(path))):
        await until(lambda: caplog.records, "a report")
        await asyncio.sleep(0.6)
        assert [record.getMessage() for record in caplog.records if str(path) in record.getMessage()] == [
            f"serial port {path}: No such file or directory; trying again"
        ]
        path.symlink_to(cable.near)
        device = Device(cable.far)
        await device.expect(Connack)
        device.power_off()


async def test_a_port_that_vanishes_is_used_again_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "port"
    async with running(tmp_path / "store", *listeners(str(path))):
        for session_present in (False, True):
            master, slave = os.openpty()
            path.symlink_to(os.ttyname(slave))
            device = Device(master)
            assert (await device.expect(Connack)).session_present == session_present
            path.unlink()
            caplog.clear()
            device.power_off()
            os.close(slave)
            await until(lambda: f"serial port {path}: " in caplog.text, "a report")
