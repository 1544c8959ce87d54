"""A device on a real MicroPython, and a real gateway that loses its store; and one that sleeps, in simulated time."""

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from device.config import Config
from tests.device import duty_cycle
from tests.device.firmware import DEADLINE_S, TOPIC, Firmware, seq, tcp
from tests.device.mqtt.test_receipts import SECOND
from tests.device.mqtt.test_receipts import Gateway as ModelGateway
from tests.device.mqtt.virtual import KEYS, VirtualPort
from tools.lab.micropython import MicroPython
from tools.lab.testing.client import Client
from tools.lab.testing.gateway import Gateway
from wire.identity import RECEIVE
from wire.receipt import receipt_topic

READINGS = 240
RULES = "allow * publish,subscribe #\n"
PAGE_RULES = """
allow * publish telemetry/#
allow * subscribe hf/receipt
allow * subscribe hf/receipt/%c
allow * subscribe hf/receipt/site%2Fgarage
allow * publish hf/receipt/#
"""
AWAKE_MS, INTERVAL_MS = 2000, 10_000
ROUND_TRIP_MS = 50
HEAP_BYTES = 24 * 1024  # what a receipt may take at once on a VM of 64 bits, also of what the next collection frees
READ = """
import gc, sys
from device.mqtt.receipts import TOPIC, KeepingPublisher
from flash_store.kept import KeepingLog
from flash_store.devices.file import FileFlash
FULL = b"hf1 3f0c9a1e 1 0000cafe:0" + b"".join([b",%d-%d" % (9 * run, 9 * run + 7) for run in range(1, 33)])
flash = FileFlash(sys.argv[1], 4096, 8)
KeepingLog.format(flash, 0xcafe)
log = KeepingLog(flash)
publisher = KeepingPublisher(log, "garage-1", None, print)
for payload in (b" " * 4000, b";" * 1000, b"hf1 3f0c9a1e 1 " + b";" * 1000, b"hf1 3f0c9a1e 1 0000cafe:0" + b",5" * 490,
                FULL):
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    publisher.hear(TOPIC + "/garage-1", payload)
    print(gc.mem_alloc() - before)
    gc.enable()
"""


async def all_arrive_at(gateway: Gateway, device: Firmware) -> set[int]:
    """Starts a device, and returns the numbers of its messages once all of them have come through a gateway."""
    client = await Client("before", wishes=(RECEIVE,)).connect(gateway.port)
    await client.subscribe(TOPIC)
    await device.start()
    await device.says(f"all {READINGS} readings made")
    made = {line.seq for line in device.journal()}
    await arrived(client, made)
    return made


async def test_a_gateway_that_lost_its_store_gets_all_that_the_flash_held(
    micropython: MicroPython, tmp_path: Path
) -> None:
    (tmp_path / "gateway").mkdir()
    gateway = Gateway(tmp_path / "gateway")
    device = Firmware(micropython, tmp_path, tcp(gateway.port), readings_limit=READINGS, until="receipt")
    await gateway.up()
    try:
        made = await all_arrive_at(gateway, device)
        await device.kill()
        gateway.kill()
        shutil.rmtree(gateway.messages.parent)
        await gateway.up()
        client = await Client("after", wishes=(RECEIVE,)).connect(gateway.port)
        await client.subscribe(TOPIC)
        await device.start()
        await device.says("the gateway has a new store: messages from 1 on go again")
        await arrived(client, made)
    finally:
        await device.kill()
        gateway.kill()


async def test_a_gateway_that_was_replaced_before_its_rules_were_gets_all_once_they_are_there(
    micropython: MicroPython, tmp_path: Path
) -> None:
    (tmp_path / "gateway").mkdir()
    gateway = Gateway(tmp_path / "gateway", rules=RULES)
    device = Firmware(micropython, tmp_path, tcp(gateway.port), readings_limit=READINGS, until="receipt")
    await gateway.up()
    try:
        made = await all_arrive_at(gateway, device)
        gateway.kill()
        shutil.rmtree(gateway.messages.parent)
        (tmp_path / "gateway" / "rules").write_text("allow * subscribe #\n")
        await gateway.up()
        await device.says("refused: not authorized")
        (tmp_path / "gateway" / "rules").write_text(RULES)
        await gateway.interrupt()
        client = await Client("after", wishes=(RECEIVE,)).connect(gateway.port)
        await client.subscribe(TOPIC)
        await arrived(client, made)
    finally:
        await device.kill()
        gateway.kill()


@pytest.mark.parametrize("name", ["garage-1", "site/garage"])
async def test_a_device_hears_its_own_receipt_by_the_rules_of_the_page(
    micropython: MicroPython, tmp_path: Path, name: str
) -> None:
    """A receipt that claims too much tells that it was heard."""
    (tmp_path / "gateway").mkdir()
    gateway = Gateway(tmp_path / "gateway", rules=PAGE_RULES)
    device = Firmware(micropython, tmp_path, tcp(gateway.port), readings_limit=1, until="receipt", client_id=name)
    await gateway.up()
    try:
        await device.start()
        await device.says("connected to")
        epoch = (await device.says("epoch ")).split("epoch ")[1][:8]
        client = await Client("job").connect(gateway.port)
        await client.publish(receipt_topic(name), f"hf1 3f0c9a1e 1 {epoch}:99".encode(), qos=1, retain=True)
        await device.says(f"a receipt on {receipt_topic(name)} does not count: it claims message 99")
    finally:
        assert not any("no receipts" in line for line in await device.end())
        gateway.kill()


async def arrived(client: Client, numbers: set[int]) -> None:
    """Returns when the client has received the messages of these numbers."""
    found: set[int] = set()
    async with asyncio.timeout(DEADLINE_S):
        while not numbers <= found:
            message = await client.receive()
            found.add(seq(message))


@pytest.mark.parametrize("connect_every", [1, 2])
def test_a_device_that_sleeps_sends_again_while_it_is_awake_and_keeps_its_rhythm(connect_every: int) -> None:
    board, gateway = duty_cycle.Board(), ModelGateway()
    for number in range(4):
        wake(board, gateway, connect_every, 0 if number else 400)
    assert set(gateway.numbers()) == set(range(1, 405))
    gateway.begin_store(SECOND)
    wakes = 0
    while not set(range(1, 405)) <= set(gateway.numbers()):
        connects = gateway.connects
        spent_ms = [wake(board, gateway, connect_every) for _ in range(connect_every)]
        wakes += 1
        assert gateway.connects == connects + 1
        assert max(spent_ms) <= AWAKE_MS + 200
    assert 1 < wakes < 4
    for _ in range(connect_every):
        wake(board, gateway, connect_every)
    assert max([wake(board, gateway, connect_every) for _ in range(connect_every)]) < 500


def test_no_receipt_takes_much_of_the_heap_whatever_it_says(micropython: MicroPython, tmp_path: Path) -> None:
    done = subprocess.run(
        [*micropython.argv, "-X", "heapsize=512k", "-c", READ, str(tmp_path / "flash.bin")],
        env=micropython.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    taken = [int(line) for line in done.stdout.splitlines() if line.isdigit()]
    assert len(taken) == 5, done.stderr
    assert max(taken) < HEAP_BYTES


class SleepingDevice(duty_cycle.SleepingDevice):
    """One time awake, with a gateway whose answers take a round trip."""

    def __init__(self, board: duty_cycle.Board, gateway: ModelGateway, connect_every: int) -> None:
        self.port = VirtualPort(gateway)
        keys: dict[str, Any] = {
            "flash": {"path": "flash.bin", "sector_count": duty_cycle.SECTORS},
            "interval_ms": INTERVAL_MS,
            "sensors": ["host"],
            "duty": {"connect_every": connect_every, "awake_ms": AWAKE_MS},
            "until": "receipt",
        }
        super().__init__(Config({**KEYS, **keys}), board)

    def _make_port(self, _config: object) -> Any:
        return self.port

    def _wait(self, timers_ms: list[int | None]) -> bool:
        if not self.port.coming:
            return super()._wait(timers_ms)
        self.board.ticks_ms += ROUND_TRIP_MS
        return True


def wake(board: duty_cycle.Board, gateway: ModelGateway, connect_every: int, more: int = 0) -> int:
    """Until it sleeps again; returns for how many ms it was awake. `more` is how many messages a program adds."""
    before_ms = board.ticks_ms - board.asleep_ms
    device = SleepingDevice(board, gateway, connect_every)
    for _ in range(more):
        device.publish(TOPIC, b"x" * 40)
    while not device.has_ended:
        device.advance()
    return board.ticks_ms - board.asleep_ms - before_ms
