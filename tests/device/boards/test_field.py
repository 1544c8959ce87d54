"""Life in the field, on a real MicroPython with simulated chips: moves, a button, the battery, causes of resets."""

import asyncio
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.device.boards.powered import PLATFORMS, Board
from tests.device.firmware import TOPIC, eventually, tcp
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tools.cli.device.build import Board as Kind
from tools.cli.device.build import build_board
from tools.lab.micropython import MicroPython
from wire.codec.packets import Publish

EACH_PLATFORM = pytest.mark.parametrize("platform", PLATFORMS)
COMMANDS, STATUS, ANSWERS = "commands/garage", "status/garage", f"{TOPIC}/answer"
ATTIC = {"ssid": "attic", "password": "under the roof"}
NOWHERE = {"ssid": "nowhere", "password": "behind the moon"}
DEAD = {"host": "127.0.0.1", "port": 9}
BOARDS, AT_ONCE, DEADLINE_S = 100, 10, 60
START_S = 60  # to the first connection, also on a machine that has much else to do
FAULTS = ("", "", "silent", "liar")


def command(told: dict[str, Any], identifier: int = 7, dup: bool = False) -> Publish:
    return Publish(COMMANDS, json.dumps(told).encode(), 2, False, dup, identifier, {})


def told(broker: ScriptedBroker, topic: str) -> list[dict[str, Any]]:
    """Each message to this topic once, in order."""
    unique = {p.packet_identifier: p for publishes in broker.publishes for p in publishes if p.topic == topic}
    return [json.loads(publish.payload) for publish in unique.values()]


def board_of(platform: str, vm: MicroPython, folder: Path, broker: ScriptedBroker, **change: Any) -> Board:
    change = {"commands": COMMANDS, "network": ATTIC, "interval_ms": 60_000, **change}
    board = Board(platform, vm, folder, tcp(broker.port), **change)
    board.wifi("up attic")
    return board


@EACH_PLATFORM
async def test_status_tells_battery_and_why_the_board_started(
    platform: str, micropython: MicroPython, tmp_path: Path
) -> None:
    program = f"""
import machine
machine.apply_voltage(26, 2.0)
import device.main
device.main.main({str(tmp_path / "device.json")!r})
"""
    async with scripted_broker(commands=[command({"command": "restart"})]) as broker:
        change = {
            "status": STATUS,
            "field": {"battery": {"pin": 26, "full_scale_mv": 6600}},
            "sensors": [],
            "network": ATTIC,
        }
        board = Board(
            platform, micropython, tmp_path, tcp(broker.port), program, commands=COMMANDS, interval_ms=60_000, **change
        )
        board.wifi("up")
        await board.start()
        await eventually(lambda: len(broker.connects) == 2 and broker.publishes[1])
        await board.end()
    first, second = (
        json.loads(next(one.payload for one in publishes if one.topic == STATUS)) for publishes in broker.publishes[:2]
    )
    assert first["battery_v"] == pytest.approx(4.0, abs=0.05)
    assert (first["reset_cause"], second["reset_cause"]) == ("power", "restart")


@EACH_PLATFORM
async def test_held_button_brings_the_file_back_and_keeps_the_messages(
    platform: str, micropython: MicroPython, tmp_path: Path
) -> None:
    program = f"""
import machine, _chip
value = machine.Pin.value
machine.Pin.value = lambda pin: 0 if pin.number == 14 and _chip.read("pressed") else value(pin)
import device.main
device.main.main({str(tmp_path / "device.json")!r})
"""
    async with scripted_broker(commands=[command({"command": "interval", "interval_ms": 50})]) as broker:
        change = {"field": {"button": {"pin": 14, "hold_s": 2}}, "network": ATTIC, "commands": COMMANDS}
        board = Board(platform, micropython, tmp_path, tcp(broker.port), program, interval_ms=60_000, **change)
        board.wifi("up")
        await board.start()
        await eventually(lambda: told(broker, ANSWERS))
        broker.puback = lambda publish: None
        await eventually(lambda: len(broker.publishes[-1]) > 4)
        broker.commands = []
        (tmp_path / "pressed").write_text("yes")
        await board.says("the button has reset the device to its file; its messages are kept")
        (tmp_path / "pressed").unlink()
        line = await board.says("boot 2")
        assert int(line.split(" messages to send")[0].split()[-1]) > 3
        lines = await board.end()
        assert not any("by a command" in line for line in lines)


async def there(condition: Callable[[], object], seconds: float) -> None:
    """Returns when the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def vain_move(board: Board, broker: ScriptedBroker, folder: Path, chance: random.Random | None) -> float:
    """Moves the board to a network that does not exist; the power may go at any moment. Returns how many seconds after
    the command the board has said at its old place that it is back, without those without power."""
    await board.start()
    move: dict[str, Any] = {"command": "move", "network": NOWHERE, "deadline_s": DEADLINE_S}
    if (folder / "wifi_fault").exists() and (folder / "wifi_fault").read_text() == "liar":
        move["port"] = DEAD
    await there(lambda: broker.subscribes, START_S)
    began, off_s = time.monotonic(), 0.0
    broker.command(command(move))
    broker.session_present = True
    if chance is not None:
        await asyncio.sleep(chance.uniform(0, DEADLINE_S))
        await board.kill()
        off_began = time.monotonic()
        await broker.all_closed()
        if 7 not in broker.pubrecs:
            broker.commands = [command(move, dup=True)]
        await board.start()
        off_s = time.monotonic() - off_began
    await there(lambda: told(broker, ANSWERS), 3 * DEADLINE_S)
    return time.monotonic() - began - off_s


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For each platform the folder of its compiled modules."""
    folders = {platform: tmp_path_factory.mktemp(platform) for platform in PLATFORMS}
    for platform, folder in folders.items():
        build_board(Kind(platform), folder)
    return {platform: folder / "lib" for platform, folder in folders.items()}


@pytest.mark.long
@pytest.mark.parametrize("group", range(BOARDS // AT_ONCE))
async def test_a_hundred_boards_come_back_from_a_wifi_that_does_not_exist(
    group: int, programs: dict[str, Path], micropython: MicroPython, tmp_path: Path, seed: int
) -> None:
    """With the faults of real radios, and for half of them a power cut at any moment."""
    print(f"seed {seed}")
    took: list[float] = []

    async def one(number: int) -> None:
        chance = random.Random(seed + number)
        folder = tmp_path / f"board-{number}"
        folder.mkdir()
        platform = PLATFORMS[number % 2]
        (folder / "lib").symlink_to(programs[platform])
        (folder / "wifi_fault").write_text(fault := chance.choice(FAULTS))
        async with scripted_broker() as broker:
            board = board_of(platform, micropython, folder, broker)
            took.append(await vain_move(board, broker, folder, chance if number % 4 > 1 else None))
            lines = await board.end()
        (answer,) = told(broker, ANSWERS)
        assert "the device is at its old place" in answer["error"], (number, fault, answer)
        assert not any("behind the moon" in line for line in lines)

    async with asyncio.TaskGroup() as tasks:
        for number in range(group * AT_ONCE, (group + 1) * AT_ONCE):
            tasks.create_task(one(number))
    print(f"slowest of {len(took)}: {max(took):.1f} s of {DEADLINE_S}")
    assert len(took) == AT_ONCE and max(took) <= DEADLINE_S


SLOW_NAME = """
import socket, time
import device.main, device.ports.tcp
class Slow:
    SOCK_STREAM, socket = socket.SOCK_STREAM, socket.socket
    def getaddrinfo(host, *rest):
        if host == "slow.local":
            time.sleep(60)
        return socket.getaddrinfo(host, *rest)
device.ports.tcp.socket = Slow
device.main.main({config!r})
"""


async def test_a_look_up_that_blocks_beyond_the_deadline_does_not_keep_the_board_away(
    micropython: MicroPython, tmp_path: Path
) -> None:
    """The board has no watchdog in its configuration, and gets one for the trial."""
    async with scripted_broker() as broker:
        program = SLOW_NAME.format(config=str(tmp_path / "device.json"))
        change: dict[str, Any] = {"network": ATTIC, "commands": COMMANDS, "interval_ms": 60_000}
        board = Board("esp32", micropython, tmp_path, tcp(broker.port), program, **change)
        board.wifi("up")
        await board.start()
        await eventually(lambda: broker.subscribes)
        broker.command(command({"command": "move", "port": {"host": "slow.local"}, "deadline_s": 10}))
        broker.session_present = True
        await there(lambda: told(broker, ANSWERS), 40)
        lines = await board.end()
    assert (
        told(broker, ANSWERS)[0]["error"] == "the device started anew during the trial; the device is at its old place"
    )
    assert sum(" boot " in line for line in lines) == 3


async def test_a_board_that_sleeps_stays_awake_for_a_trial_and_sleeps_again_at_its_old_place(
    micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker() as broker:
        duty = {"connect_every": 1, "awake_ms": 20_000}
        board = board_of("esp32", micropython, tmp_path, broker, duty=duty, interval_ms=10_000)
        (tmp_path / "hurry").write_text("")
        broker.commands = [command({"command": "move", "network": NOWHERE, "deadline_s": 10})]
        await board.start()
        await board.says("a move is on trial: it has 6 s to prove itself")
        broker.commands, broker.session_present = [], True
        await there(lambda: told(broker, ANSWERS), 40)
        connects = len(broker.connects)
        await there(lambda: len(broker.connects) > connects, 40)
        await board.end()
    assert "no connection in 6 s" in told(broker, ANSWERS)[0]["error"]
