"""The adapters on a real MicroPython with simulated chips: what Wi-Fi, watchdog, sleep and flash do to a device."""

from pathlib import Path

import pytest

from tests.device.boards.powered import PLATFORMS, Board
from tests.device.firmware import eventually, published, reached, seqs, tcp
from tests.device.serial_bridge import serial_bridge
from tests.support.scripted_broker import scripted_broker
from tools.lab.micropython import MicroPython
from tools.lab.testing.serial_line import SerialLine

NETWORK = {"ssid": "attic", "password": "under the roof"}
NOWHERE = tcp(9)
EACH_PLATFORM = pytest.mark.parametrize("platform", PLATFORMS)


@EACH_PLATFORM
async def test_readings_made_without_wifi_arrive_when_it_is_back(
    platform: str, micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker(session_present=True) as broker:
        board = Board(platform, micropython, tmp_path, tcp(broker.port), network=NETWORK, interval_ms=50)
        board.wifi("down")
        await board.start()
        await board.says("boot 1")
        board.wifi("up")
        await board.says("Wi-Fi attic joined, address 127.0.0.1")
        await published(broker, 0, 10)
        board.wifi("down")
        await board.says("Wi-Fi attic lost")
        await board.says("disconnected: the network is gone")
        board.wifi("up")
        await published(broker, 1, 10)
        await board.end()
        received = {number for connection in broker.publishes for number in seqs(connection)}
        assert received == set(range(1, max(received) + 1))


@EACH_PLATFORM
async def test_wrong_wifi_password_is_said(platform: str, micropython: MicroPython, tmp_path: Path) -> None:
    program = """
from device.boards import board
from device.watchdog import NoWatchdog
now_ms = [0]
class Attic:
    ssid, password, address = "attic", "guess", None
network = board.Network([Attic], None, board.say, NoWatchdog())
import time
while now_ms[0] < 20_000:
    network.advance(now_ms[0])
    now_ms[0] = network.next_timer_ms()
    time.sleep(0.02)
"""
    board = Board(platform, micropython, tmp_path, NOWHERE, program)
    board.wifi("wrong password")
    await board.start()
    await board.says("Wi-Fi attic cannot be joined: wrong password; attempts go on")


NETWORKS = """
class Attic:
    ssid, password, address = "attic", "p", None
class Cellar:
    ssid, password, address = "cellar", "q", ("10.0.0.9", "255.255.255.0", "10.0.0.1", "10.0.0.2")
from device.boards import board
from device.watchdog import NoWatchdog
import time
now_ms = [0]
network = board.Network([Attic, Cellar], "shed-7", board.say, NoWatchdog())
while True:
    network.advance(now_ms[0])
    now_ms[0] = network.next_timer_ms() + 4_750
    time.sleep(0.1)
"""


@EACH_PLATFORM
async def test_second_network_is_joined_where_the_first_is_gone_and_left_when_it_is_back(
    platform: str, micropython: MicroPython, tmp_path: Path
) -> None:
    board = Board(platform, micropython, tmp_path, NOWHERE, NETWORKS)
    board.wifi("up cellar")
    await board.start()
    await board.says("Wi-Fi attic cannot be joined")
    await board.says("Wi-Fi cellar joined, address 10.0.0.9")
    assert (tmp_path / "hostname").read_text() == "shed-7"
    board.wifi("up attic cellar")
    await board.says("Wi-Fi attic joined, address 127.0.0.1")
    board.wifi("up cellar")
    await board.says("Wi-Fi attic lost")
    await board.end()


DEAF = """
from device.boards import board
from device.watchdog import NoWatchdog
import time
class Attic:
    ssid, password, address = "attic", None, None
now_ms = [0]
network = board.Network([Attic], None, board.say, NoWatchdog(), "DE")
while now_ms[0] < 1_700_000:
    network.advance(now_ms[0])
    if now_ms[0] < 600_000 and network.is_up:
        network.hear(now_ms[0])
    now_ms[0] = network.next_timer_ms() + 750
    if not network.is_up:
        time.sleep(0.05)
board.say("the end")
"""


@EACH_PLATFORM
async def test_open_network_in_which_no_broker_answers_any_more_is_joined_anew(
    platform: str, micropython: MicroPython, tmp_path: Path
) -> None:
    board = Board(platform, micropython, tmp_path, NOWHERE, DEAF)
    board.wifi("up")
    await board.start()
    await board.says("Wi-Fi attic is joined, but no broker answers: it is joined anew")
    await board.says("the end")
    # At the start, five minutes after the broker has been heard last, and after ten minutes more.
    assert (tmp_path / "joins").read_text() == 3 * "attic None\n"
    assert (tmp_path / "country").read_text() == "DE"


@EACH_PLATFORM
async def test_stored_messages_survive_a_power_cut_on_the_boards_own_flash(
    platform: str, micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker() as broker:
        board = Board(platform, micropython, tmp_path, tcp(broker.port), network=NETWORK)
        board.wifi("down")
        await board.start()
        await board.says("boot 1")
        await eventually(lambda: (tmp_path / "flash").read_bytes().count(b"telemetry/garage") >= 10)
        await board.kill()
        board.wifi("up")
        await board.start()
        await reached(broker, 0, 10)
        await board.end()
        assert seqs(broker.publishes[0])[:10] == list(range(1, 11))


@EACH_PLATFORM
async def test_board_that_hangs_is_reset_and_knows_why(platform: str, micropython: MicroPython, tmp_path: Path) -> None:
    program = """
from device.boards import board
board.say("started by " + board.reset_cause())
if board.reset_cause() == "power":
    watchdog = board.Watchdog(200)
    for _ in range(3):
        watchdog.feed()
    while True:
        pass
"""
    board = Board(platform, micropython, tmp_path, NOWHERE, program)
    await board.start()
    await board.says("started by power")
    await board.says("started by watchdog")


async def test_memory_lasts_through_deep_sleep_and_not_through_a_power_cut(
    micropython: MicroPython, tmp_path: Path
) -> None:
    program = """
from device.boards import board
board.say(board.reset_cause() + " " + repr(board.recall()))
if board.reset_cause() == "power":
    board.deep_sleep(50, b"noted")
"""
    board = Board("esp32", micropython, tmp_path, NOWHERE, program)
    for _ in range(2):
        await board.start()
        await board.says("power b''")
        await board.says("deep sleep b'noted'")
        await board.ended()


@EACH_PLATFORM
async def test_readings_arrive_over_the_boards_uart(platform: str, micropython: MicroPython, tmp_path: Path) -> None:
    line = SerialLine()
    line.open()
    try:
        (tmp_path / "uart1").write_text(line.near)
        uart = {"kind": "uart", "path": "1:4:5", "baud": 115_200}
        async with scripted_broker() as broker, serial_bridge(line.far, broker.port):
            board = Board(platform, micropython, tmp_path, uart)
            await board.start()
            await published(broker, 0, 5)
            await board.end()
    finally:
        line.close()


@EACH_PLATFORM
@pytest.mark.parametrize("path", ["2:4:5", "uart", "1:4"])
async def test_uart_that_the_board_does_not_have_is_named(
    path: str, platform: str, micropython: MicroPython, tmp_path: Path
) -> None:
    program = f"""
from device.boards import board
try:
    board.open_line({path!r}, 115200)
except OSError as error:
    board.say(str(error))
"""
    board = Board(platform, micropython, tmp_path, NOWHERE, program)
    await board.start()
    await board.says(f"{path} is no UART:TX:RX of this board")
