"""The firmware at the end of a serial line."""

import os
import select
from contextlib import suppress
from pathlib import Path

import pytest

from device.ports.uart import Uart
from tests.device.firmware import Firmware, eventually, published, reached, seq, seqs
from tests.device.serial_bridge import serial_bridge, serial_line, uart
from tests.support.scripted_broker import scripted_broker
from tools.lab.micropython import MicroPython
from wire.link import Link, LinkLog, LinkUp


@pytest.mark.parametrize("vm_name", ["MicroPython", "CPython"])
async def test_readings_arrive_over_a_serial_line(vm_name: str, micropython: MicroPython, tmp_path: Path) -> None:
    async with serial_line() as line, scripted_broker() as broker, serial_bridge(line.far, broker.port):
        vm = micropython if vm_name == "MicroPython" else None
        device = Firmware(vm, tmp_path, uart(line.near), clock="none")
        await device.start()
        await device.says("connected")
        await published(broker, 0, 20)
        lines = await device.end()
        assert seqs(broker.publishes[0]) == list(range(1, len(broker.publishes[0]) + 1))
        assert not any("no broker" in line for line in lines)


async def test_killed_device_sends_again_over_a_serial_line(micropython: MicroPython, tmp_path: Path) -> None:
    async with (
        serial_line() as line,
        scripted_broker(puback=lambda _publish: None, session_present=True) as broker,
        serial_bridge(line.far, broker.port),
    ):
        device = Firmware(micropython, tmp_path, uart(line.near))
        await device.start()
        await published(broker, 0, 8)
        await device.kill()
        broker.puback = lambda _publish: 0
        await device.start()
        await reached(broker, 1, len(device.journal()) + 1)
        await device.end()
        first, again = broker.publishes
        assert seqs(again) == list(range(1, len(again) + 1))
        assert [p.packet_identifier for p in again[:8]] == [p.packet_identifier for p in first]
        assert [p.payload for p in again[:8]] == [p.payload for p in first]
        assert all(p.dup for p in again[:8])


async def test_device_waits_for_the_far_end_and_finds_it_again(micropython: MicroPython, tmp_path: Path) -> None:
    async with serial_line() as line, scripted_broker(session_present=True) as broker:
        device = Firmware(micropython, tmp_path, uart(line.near), interval_ms=50)
        await device.start()
        await eventually(lambda: len(device.journal()) >= 20)
        async with serial_bridge(line.far, broker.port, boot_id=1):
            await device.says("connected")
            await published(broker, 0, 20)
        async with serial_bridge(line.far, broker.port, boot_id=2):
            await eventually(lambda: len(broker.publishes) > 1)
            await reached(broker, 1, len(device.journal()) + 1)
        await device.end()
        received = {seq(publish) for publishes in broker.publishes for publish in publishes}
        assert received == set(range(1, max(received) + 1))


async def test_broker_that_hangs_up_is_found_again_over_a_serial_line(micropython: MicroPython, tmp_path: Path) -> None:
    async with (
        serial_line() as line,
        scripted_broker(session_present=True) as broker,
        serial_bridge(line.far, broker.port),
    ):
        device = Firmware(micropython, tmp_path, uart(line.near))
        await device.start()
        await published(broker, 0, 3)
        broker.drop_clients()
        await device.says("disconnected")
        await reached(broker, 1, len(device.journal()) + 1)
        await device.end()


async def test_line_that_is_not_there_yet_is_opened_when_it_comes(micropython: MicroPython, tmp_path: Path) -> None:
    async with serial_line() as line, scripted_broker() as broker, serial_bridge(line.far, broker.port):
        path = tmp_path / "ttyUSB0"
        device = Firmware(micropython, tmp_path, uart(str(path)))
        await device.start()
        await device.says("no broker")
        os.symlink(line.near, path)
        await device.says("connected")
        await published(broker, 0, 3)
        lines = await device.end()
        assert sum("no broker" in line for line in lines) == 1


def test_pause_waits_for_the_far_side_and_not_for_ever() -> None:
    master, slave = os.openpty()
    os.set_blocking(master, False)
    poller = select.poll()
    port = Uart(os.ttyname(slave), 115_200, poller, boot_id=1)
    far = Link(2)

    def exchange(now_ms: int) -> None:
        for _ in range(10):
            for _, ready in poller.poll(0):
                port.advance(ready, now_ms)
            while port.next_event() is not None:
                pass
            with suppress(BlockingIOError):
                far.receive_data(os.read(master, 4096), now_ms)
            while data := far.data_to_send():
                os.write(master, data)

    port.open(0)
    exchange(0)
    assert port.pause(0)  # there is no peer whose bytes could be lost
    port.resume(0)
    far.open(0)
    exchange(1)
    assert not port.pause(2)
    exchange(3)
    assert port.pause(4)
    port.resume(400)
    exchange(401)
    assert not port.pause(500)  # the far side stands still
    assert port.next_timer_ms() is not None
    assert port.pause(1_500)
    port.resume(1_900)
    port.log("still here")
    exchange(1_901)
    assert isinstance(far.next_event(), LinkUp)
    log = far.next_event()
    assert isinstance(log, LinkLog) and log.data == b"still here"
    port.close()
    os.close(master)
    os.close(slave)
