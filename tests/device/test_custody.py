"""A message is the device's until the broker has acknowledged it, whatever dies in between."""

from pathlib import Path

import pytest

from tests.device.firmware import Firmware, eventually, passed, published, reached, records, seq, seqs, tcp
from tests.support.scripted_broker import scripted_broker, silent
from tools.lab.micropython import MicroPython
from wire.codec.packets import Publish


async def test_message_is_not_acknowledged_in_flash_before_its_puback(micropython: MicroPython, tmp_path: Path) -> None:
    async with scripted_broker(puback=silent) as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port), readings_limit=24)
        await device.start()
        await device.says("all 24 readings made")
        await published(broker, 0, len(device.journal()))
        await device.kill()
        broker.puback = lambda _publish: 0
        await device.start()
        await published(broker, 1, len(broker.publishes[0]))
        await device.end()
        first, again = broker.publishes
        assert seqs(again) == seqs(first) == [line.seq for line in device.journal()]
        assert [p.payload for p in again] == [p.payload for p in first]
        assert [p.properties for p in again] == [p.properties for p in first]
        assert [p.packet_identifier for p in again] == [p.packet_identifier for p in first]


async def test_nothing_journaled_is_missing_after_a_kill(micropython: MicroPython, tmp_path: Path) -> None:
    async with scripted_broker(session_present=True) as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port))
        for boot in range(3):
            await device.start()
            await published(broker, boot, 20)
            await device.kill()
        limit = device.made() + 20
        device.change(readings_limit=limit)
        await device.start()
        await device.says(f"all {limit} readings made")
        last_made = device.journal()[-1].seq
        await eventually(lambda: any(seq(p) >= last_made for connection in broker.publishes for p in connection))
        await device.end()
        received = {seq(publish) for publishes in broker.publishes for publish in publishes}
        made = [line.seq for line in device.journal()]
        assert set(made) <= received
        assert len(set(made)) == len(made), "a number was given twice"
        assert {line.epoch for line in device.journal()} == {device.journal()[0].epoch}
        assert received == set(range(1, max(received) + 1))


@pytest.mark.parametrize("session_present", [False, True])
async def test_repeated_messages_are_duplicates_only_in_a_session_that_goes_on(
    session_present: bool, micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker(puback=silent) as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port))
        await device.start()
        await published(broker, 0, 8)
        broker.session_present = session_present
        broker.drop_clients()
        await device.says("disconnected")
        await published(broker, 1, 8)
        await device.kill()
        broker.puback = lambda _publish: 0
        await device.start()
        await reached(broker, 2, len(device.journal()))
        made = len(device.journal())
        await passed(broker, 2, made)
        await device.end()
        first, second, third = broker.publishes
        assert seqs(first) == seqs(second) == list(range(1, 9))
        assert [publish.dup for publish in first] == [False] * 8
        assert [publish.dup for publish in second] == [session_present] * 8
        assert [publish.dup for publish in third[:8]] == [session_present] * 8
        assert not third[-1].dup, "it was made in this boot and sent for the first time"
        assert [p.packet_identifier for p in second] == [p.packet_identifier for p in first]


async def test_refused_message_goes_out_anew_and_holds_up_no_other(micropython: MicroPython, tmp_path: Path) -> None:
    refused: list[int] = []

    def refuse_the_third_once(publish: Publish) -> int:
        if seq(publish) == 3 and not refused:
            refused.append(3)
            return 0x97
        return 0

    async with scripted_broker(puback=refuse_the_third_once, session_present=True) as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port))
        await device.start()
        assert "quota exceeded" in await device.says("message 3 refused")
        await eventually(lambda: seqs(broker.publishes[0]).count(3) == 2)
        lines = await device.end()
        assert sum("refused" in line for line in lines) == 1
        first, again = [p for p in broker.publishes[0] if seq(p) == 3]
        assert again.payload == first.payload and again.packet_identifier == first.packet_identifier
        assert not again.dup
        between = seqs(broker.publishes[0])
        assert 20 in between[: len(between) - between[::-1].index(3)]


@pytest.mark.parametrize("receive_maximum", [3, 65535])
async def test_broker_that_refuses_everything_is_not_flooded(
    receive_maximum: int, micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker(puback=lambda _publish: 0x97, receive_maximum=receive_maximum) as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port))
        await device.start()
        await published(broker, 0, 16)
        lines = await device.end()
        assert seqs(broker.publishes[0][:16]) == [*range(1, 9), *range(1, 9)]
        assert sum("refused" in line for line in lines) <= 3


async def test_full_store_pauses_sampling_and_loses_nothing(micropython: MicroPython, tmp_path: Path) -> None:
    async with scripted_broker(puback=silent, session_present=True) as broker:
        flash = {"path": str(tmp_path / "small.bin"), "sector_count": 6}
        device = Firmware(micropython, tmp_path, tcp(broker.port), flash=flash, interval_ms=2)
        await device.start()
        await device.says("sampling pauses")
        made = len(device.journal())
        broker.puback = lambda _publish: 0
        broker.drop_clients()
        await device.says("sampling goes on")
        await eventually(lambda: len(device.journal()) > made + 20)
        made = len(device.journal())
        await eventually(lambda: made in seqs(broker.publishes[-1]))
        lines = await device.end()
        said = [line for line in lines if "sampling" in line]
        assert all("pauses" in line for line in said[::2]) and all("goes on" in line for line in said[1::2])
        received = {seq(publish) for publishes in broker.publishes for publish in publishes}
        assert set(range(1, made + 1)) <= received
        assert [line.seq for line in device.journal()[:made]] == list(range(1, made + 1))


async def test_corrupt_last_record_is_skipped_counted_and_said(micropython: MicroPython, tmp_path: Path) -> None:
    async with scripted_broker(puback=silent) as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port), readings_limit=20)
        await device.start()
        await device.says("all 20 readings made")
        made = [line.seq for line in device.journal()]
        await published(broker, 0, len(made))
        await device.kill()
        content = bytearray(device.flash_path.read_bytes())
        at = content.index(broker.publishes[0][-1].payload)
        content[at + 5] ^= 0x20
        device.flash_path.write_bytes(content)
        broker.puback = lambda _publish: 0
        device.change(readings_limit=30)
        await device.start()
        await device.says("1 bad record(s) skipped")
        await passed(broker, 1, made[-1])
        await device.end()
        assert seqs(broker.publishes[1])[: len(made) - 1] == made[:-1]
        assert made[-1] not in seqs(broker.publishes[1]), "its number was used for another message"


async def test_readings_limit_counts_over_restarts(micropython: MicroPython, tmp_path: Path) -> None:
    async with scripted_broker() as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port), readings_limit=100)
        await device.start()
        await eventually(lambda: device.made() >= 20)
        await device.kill()
        assert device.made() < 100
        await device.start()
        await device.says("all 100 readings made")
        await eventually(lambda: len(device.journal()) in seqs(broker.publishes[-1]))
        await device.kill()
        await device.start()
        await device.says("all 100 readings made")
        await device.says("connected")
        await device.end()
        assert device.made() == 100
        unique = {seq(p): p for publishes in broker.publishes for p in publishes}
        assert sum(len(records(p)) for p in unique.values()) >= 100
