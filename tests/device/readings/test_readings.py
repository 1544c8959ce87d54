"""What a reading looks like at the broker, and how the device finds one."""

import asyncio
import signal
import subprocess
import time
from pathlib import Path

import pytest

from cloud.transforms.senml import resolve
from tests.device.firmware import ORIGIN, TOPIC, Firmware, eventually, published, reached, records, seq, seqs, tcp
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tools.lab.micropython import MicroPython
from tools.lab.testing.ports import free_port
from wire.identity import IDENTITY_PROPERTY
from wire.properties import CONTENT_TYPE, USER_PROPERTY


@pytest.mark.parametrize("vm_name", ["MicroPython", "CPython"])
async def test_readings_arrive_as_senml_with_identity(vm_name: str, micropython: MicroPython, tmp_path: Path) -> None:
    async with scripted_broker() as broker:
        vm = micropython if vm_name == "MicroPython" else None
        device = Firmware(vm, tmp_path, tcp(broker.port))
        before = time.time()
        await device.start()
        await device.says("connected")
        await published(broker, 0, 5)
        await device.end()
        connect = broker.connects[0]
        assert connect.client_id == ORIGIN and not connect.clean_start
        publishes = broker.publishes[0]
        assert seqs(publishes) == list(range(1, len(publishes) + 1))
        for publish, line in zip(publishes, device.journal(), strict=False):
            identity = (IDENTITY_PROPERTY, f"{line.epoch:08x}/{line.seq}/{ORIGIN}")
            assert publish.topic == TOPIC and publish.qos == 1 and not publish.retain and not publish.dup
            assert publish.properties == {CONTENT_TYPE: "application/senml+json", USER_PROPERTY: [identity]}
            assert publish.packet_identifier == line.seq % 65535 + 1
            first, *others = records(publish)
            assert first["bn"] == f"{ORIGIN}:" and before - 1 <= first["bt"] <= time.time() + 1
            assert first["boot"] == 1 and first["up"] >= 0
            assert all(set(record) == {"n", "u", "v"} for record in others)
            assert line.readings == len(others) + 1
            assert {"load", "memory_available"} <= {record["n"] for record in (first, *others)}


async def test_device_without_a_clock_tells_its_boot_and_uptime_only(micropython: MicroPython, tmp_path: Path) -> None:
    async with scripted_broker() as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port), clock="none")
        for boot in (0, 1):
            await device.start()
            await published(broker, boot, 12)
            await device.kill()
        firsts = [records(publish)[0] for publishes in broker.publishes for publish in publishes]
        assert not any("bt" in first for first in firsts)
        assert {first["boot"] for first in firsts} == {1, 2}
        uptimes = [records(publish)[0]["up"] for publish in broker.publishes[0]]
        assert uptimes == sorted(uptimes)


async def test_device_learns_utc_from_its_gateway_and_tells_it_for_what_was_before(
    micropython: MicroPython, tmp_path: Path
) -> None:
    noon_ms = 1_780_000_000_000
    port = free_port()
    device = Firmware(micropython, tmp_path, tcp(port), clock="gateway")
    await device.start()
    await eventually(lambda: len(device.journal()) >= 5)
    broker = ScriptedBroker(time_ms=noon_ms)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", port)
    await eventually(lambda: any(b'"clock"' in p.payload for publishes in broker.publishes for p in publishes[:-5]))
    await device.end()
    broker.drop_clients()
    server.close()
    packs = [resolve(publish.payload) for publish in broker.publishes[0]]
    at = [pack[0].metric for pack in packs].index("clock")
    (anchor, error), before, after = packs[at], packs[:at], packs[at + 1 :]
    assert len(before) >= 5 and after
    assert all(record.time_us is None for pack in before for record in pack)
    assert anchor.time_us == noon_ms * 1000 and anchor.value_string == "gateway" and anchor.uptime_ms is not None
    assert error.metric == "clock_error" and error.unit == "s" and error.value is not None and 0 <= error.value < 5
    for record in (record for pack in after for record in pack):
        assert record.boot_id == anchor.boot_id and record.uptime_ms is not None
        assert record.time_us == 1000 * (noon_ms + record.uptime_ms - anchor.uptime_ms)


async def test_device_without_a_broker_samples_on_and_says_so_once(micropython: MicroPython, tmp_path: Path) -> None:
    port = free_port()
    device = Firmware(micropython, tmp_path, tcp(port))
    await device.start()
    await device.says("no broker")
    await eventually(lambda: len(device.journal()) >= 20)
    broker = ScriptedBroker()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", port)
    await reached(broker, 0, len(device.journal()) + 1)
    lines = await device.end()
    broker.drop_clients()
    server.close()
    assert seqs(broker.publishes[0])[:20] == list(range(1, 21))
    assert sum("no broker" in line for line in lines) == 1
    assert not any("disconnected" in line for line in lines)
    assert not any(publish.dup for publish in broker.publishes[0])


async def test_lost_broker_is_found_again_when_it_returns(micropython: MicroPython, tmp_path: Path) -> None:
    port = free_port()
    broker = ScriptedBroker(session_present=True)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", port)
    device = Firmware(micropython, tmp_path, tcp(port), interval_ms=50)
    await device.start()
    await published(broker, 0, 3)
    server.close()
    broker.drop_clients()
    await device.says("disconnected")
    await device.says("no broker")
    server = await asyncio.start_server(broker.serve, "127.0.0.1", port)
    await reached(broker, 1, len(device.journal()) + 1)
    lines = await device.end()
    broker.drop_clients()
    server.close()
    words = [line.partition(":")[0].split()[0] for line in lines[1:]]
    assert words == ["connected", "disconnected", "no", "connected"]
    received = {seq(publish) for publishes in broker.publishes for publish in publishes}
    assert received == set(range(1, max(received) + 1))


async def test_peer_that_is_no_broker_is_told_once_and_tried_again(micropython: MicroPython, tmp_path: Path) -> None:
    attempts: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attempts.append(len(await reader.read(1000)))
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        device = Firmware(micropython, tmp_path, tcp(server.sockets[0].getsockname()[1]))
        await device.start()
        await device.says("no broker")
        await eventually(lambda: len(attempts) >= 3 and len(device.journal()) >= 20)
        lines = await device.end()
    assert sum("no broker" in line for line in lines) == 1
    assert not any("connected" in line for line in lines)


async def test_broker_that_takes_fewer_on_the_way_gets_no_more(micropython: MicroPython, tmp_path: Path) -> None:
    async with scripted_broker(receive_maximum=3, puback=lambda _publish: None) as broker:
        device = Firmware(micropython, tmp_path, tcp(broker.port))
        await device.start()
        await published(broker, 0, 3)
        await eventually(lambda: len(device.journal()) >= 10)
        await device.end()
        assert seqs(broker.publishes[0]) == [1, 2, 3]


@pytest.mark.parametrize(("vm_name", "exit_code"), [("MicroPython", -signal.SIGINT), ("CPython", 0)])
def test_ctrl_c_ends_it_quietly(vm_name: str, exit_code: int, micropython: MicroPython, tmp_path: Path) -> None:
    device = Firmware(micropython if vm_name == "MicroPython" else None, tmp_path, tcp(free_port()))
    with subprocess.Popen(
        device.argv,
        env=device.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        while "no broker" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == exit_code
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"interval_ms": "often"}, 'interval_ms is "often", expected an integer'),
        ({"colour": "red"}, "colour is no key"),
        ({"port": {"kind": "uart", "path": "line", "baud": 12345}}, "port.baud is 12345, expected a speed"),
    ],
)
def test_bad_configuration_ends_with_2_and_names_key_and_expectation(
    change: dict[str, object], expected: str, micropython: MicroPython, tmp_path: Path
) -> None:
    device = Firmware(micropython, tmp_path, tcp(1883), **change)
    done = subprocess.run(device.argv, env=device.environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_flash_that_holds_something_else_is_left_alone(micropython: MicroPython, tmp_path: Path) -> None:
    device = Firmware(micropython, tmp_path, tcp(1883))
    content = b"a stranger's photographs" * 2000
    device.flash_path.write_bytes(content)
    done = subprocess.run(device.argv, env=device.environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert done.stderr.startswith("configuration: ")
    assert device.flash_path.read_bytes().startswith(content)
