"""A whole device on a board: what its watchdog, its sleep and its unset clock do."""

import asyncio
import json
import os
import shutil
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from tests.device.boards.powered import PLATFORMS, Board
from tests.device.firmware import eventually, published, records, seqs, tcp
from tests.device.test_sntp import answer
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tools.lab.micropython import MicroPython
from tools.lab.sim.boards._chip import HARD_RESET, WDT_RESET
from tools.lab.testing.certificates import Authority
from wire.codec.packets import Publish

NETWORK = {"ssid": "attic", "password": "under the roof"}
DUTY = {"connect_every": 3, "awake_ms": 20_000}
HANG = Publish("commands/garage", b"hang", 2, False, False, 7, {})
HANGING = """
import device.main
from device.boards import board
def on_message(topic, payload):
    while board.reset_cause() == "power":
        pass
    return {{"started by": board.reset_cause()}}
device.main.main({config!r}, on_message)
"""
UNSET = """
import device.main, device.sntp
from device.boards import board
class Sntp(device.sntp.Sntp):
    def __init__(self, host, clock, watchdog, set_time=None):
        super().__init__(host, clock, watchdog, {port}, set_time)
device.sntp.Sntp = Sntp
board.unix_ms = lambda: 0
device.main.main({config!r})
"""


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_watchdog_is_fed_while_the_firmware_turns_and_resets_it_where_it_stands_still(
    platform: str, micropython: MicroPython, tmp_path: Path
) -> None:
    change: dict[str, Any] = {
        "network": NETWORK,
        "commands": "commands/garage",
        "watchdog_ms": 4_000,
        "interval_ms": 1_500,
    }
    async with scripted_broker(session_present=True) as broker:
        program = HANGING.format(config=str(tmp_path / "device.json"))
        board = Board(platform, micropython, tmp_path, tcp(broker.port), program, **change)
        board.wifi("up")
        await board.start()
        await published(broker, 0, 4)
        assert len(broker.connects) == 1
        broker.commands = [HANG]
        broker.drop_clients()
        answers: list[Any] = []

        def is_answered() -> bool:
            came = [publish for publishes in broker.publishes for publish in publishes]
            answers[:] = [json.loads(one.payload) for one in came if one.topic == "telemetry/garage/answer"]
            return bool(answers)

        await eventually(is_answered)
        lines = await board.end()
        assert answers[0] == {"started by": "watchdog"}
        assert sum("boot 2" in line for line in lines) == 1


async def test_an_unexpected_error_is_said_and_the_board_starts_anew(micropython: MicroPython, tmp_path: Path) -> None:
    """A file system that is gone in the middle of it, say."""
    folder = tmp_path / "files"
    folder.mkdir()
    board = Board("esp32", micropython, tmp_path, tcp(9), journal=str(folder / "journal"), interval_ms=200)
    await board.start()
    await board.says("boot 1")
    shutil.rmtree(folder)
    await board.says("failed: OSError")
    folder.mkdir()
    await board.says("boot 2")
    await board.end()


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_radio_that_fails_ends_in_restarts_after_growing_pauses(
    platform: str, micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker() as broker:
        board = Board(platform, micropython, tmp_path, tcp(broker.port), network=NETWORK, watchdog_ms=2_000)
        board.wifi("broken")
        await board.start()
        line = await board.says("failed: OSError('Wifi Unknown Error")
        assert line.endswith("it starts anew in 5 s, after failure 1 in a row")
        line = await board.says("after failure 2 in a row")
        assert "in 10 s" in line and len(line) < 300
        assert (tmp_path / "cause").read_text() == str(HARD_RESET), "the watchdog was fed in the first pause"
        await board.kill()
        board.wifi("up")
        await board.start()
        await published(broker, 0, 1)
        await board.end()


FAILING_FLASH = """
import os
import esp32
class Partition(esp32.Partition):
    def readblocks(self, *arguments):
        if "broken" in os.listdir({folder!r}):
            raise OSError(5)
        super().readblocks(*arguments)
esp32.Partition = Partition
import device.main
device.main.main({config!r})
"""


async def test_flash_that_fails_at_the_start_is_told_and_tried_again_after_a_pause(
    micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker() as broker:
        program = FAILING_FLASH.format(folder=str(tmp_path), config=str(tmp_path / "device.json"))
        change: dict[str, Any] = {"network": NETWORK, "status": "status/garage", "watchdog_ms": 2_000}
        board = Board("esp32", micropython, tmp_path, tcp(broker.port), program, **change)
        board.wifi("up")
        (tmp_path / "broken").touch()
        await board.start()
        line = await board.says("flash: ")
        assert line.endswith("it starts anew in 5 s, after failure 1 in a row")
        await published(broker, 0, 1)
        assert json.loads(broker.publishes[0][0].payload)["error"].startswith("flash: ")
        (tmp_path / "broken").unlink()
        await board.says("boot 1")
        await board.end()


async def test_program_of_ones_own_starts_anew_where_the_radio_fails(micropython: MicroPython, tmp_path: Path) -> None:
    program = f"import device.library as h; h.start({str(tmp_path / 'device.json')!r})\nwhile h.advance(): pass"
    board = Board("rp2", micropython, tmp_path, tcp(9), program, network=NETWORK)
    board.wifi("broken")
    await board.start()
    await board.says("failed: OSError('Wifi Unknown Error")
    assert (tmp_path / "device.json.failed").read_text() == "1"
    await board.says("after failure 2 in a row")
    await board.end()


async def test_board_that_hangs_while_the_parts_are_made_is_reset(micropython: MicroPython, tmp_path: Path) -> None:
    journal = tmp_path / "made"
    os.mkfifo(journal)  # to open it waits for a reader, for ever
    async with scripted_broker() as broker:
        change: dict[str, Any] = {"network": NETWORK, "watchdog_ms": 3_000, "journal": str(journal)}
        board = Board("esp32", micropython, tmp_path, tcp(broker.port), **change)
        board.wifi("up")
        await board.start()
        cause = tmp_path / "cause"
        await eventually(lambda: cause.exists() and cause.read_text() == str(WDT_RESET))
        journal.unlink()
        await board.kill()
        await board.start()
        await published(broker, 0, 1)
        await board.end()


BLOCKING = """
import time
import device.ports.tcp as tcp
class Resolver:
    def __getattr__(self, name):
        return getattr(real, name)
    def getaddrinfo(self, *arguments):
        time.sleep({seconds})
        return real.getaddrinfo(*arguments)
real, tcp.socket = tcp.socket, Resolver()
tcp.LOOK_UP_MS = 10_000
import device.main
device.main.main({config!r})
"""


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_look_up_of_a_name_that_blocks_for_longer_than_the_watchdog_waits_does_not_reset_the_board(
    platform: str, micropython: MicroPython, tmp_path: Path
) -> None:
    async with scripted_broker() as broker:
        program = BLOCKING.format(seconds=3, config=str(tmp_path / "device.json"))
        board = Board(platform, micropython, tmp_path, tcp(broker.port), program, network=NETWORK, watchdog_ms=1_000)
        board.wifi("up")
        await board.start()
        await published(broker, 0, 1)
        lines = await board.end()
        assert sum("boot" in line for line in lines) == 1


@pytest.mark.parametrize("platform", PLATFORMS)
async def test_look_up_that_never_ends_resets_the_board(
    platform: str, micropython: MicroPython, tmp_path: Path
) -> None:
    program = BLOCKING.format(seconds=3600, config=str(tmp_path / "device.json")).replace("10_000", "2_000")
    board = Board(platform, micropython, tmp_path, tcp(9), program, network=NETWORK, watchdog_ms=1_000)
    board.wifi("up")
    await board.start()
    await board.says("boot 2")
    assert (tmp_path / "cause").read_text() == str(WDT_RESET)
    await board.end()


COMPUTING = """
import time
import device.ports.tls as tls
class Tls(tls.Tls):
    def _receive(self):
        if not self._is_shaken:
            time.sleep(2)  # as a signature may take
        return super()._receive()
tls.Tls = Tls
import device.main
device.main.main({config!r})
"""


async def test_tls_handshake_that_computes_for_longer_than_the_watchdog_waits_does_not_reset_the_board(
    micropython: MicroPython, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    broker = ScriptedBroker()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=context)
    port = {"kind": "tls", "host": "127.0.0.1", "port": server.sockets[0].getsockname()[1], "ca": str(authority.path)}
    program = COMPUTING.format(config=str(tmp_path / "device.json"))
    board = Board("esp32", micropython, tmp_path, port, program, network=NETWORK, watchdog_ms=1_000)
    board.wifi("up")
    await board.start()
    await published(broker, 0, 1)
    lines = await board.end()
    broker.drop_clients()
    server.close()
    assert sum("boot" in line for line in lines) == 1


async def test_row_of_failures_ends_with_a_start_that_lasts(micropython: MicroPython, tmp_path: Path) -> None:
    (tmp_path / "device.json.failed").write_text("7")
    async with scripted_broker() as broker:
        program = f"import device.main as m; m.STEADY_MS = 500; m.main({str(tmp_path / 'device.json')!r})"
        board = Board("esp32", micropython, tmp_path, tcp(broker.port), program, network=NETWORK)
        board.wifi("up")
        await board.start()
        await eventually(lambda: not (tmp_path / "device.json.failed").exists())
        await board.end()


async def test_device_with_duty_sleeps_between_samples_and_sends_each_third_time(
    micropython: MicroPython, tmp_path: Path
) -> None:
    change: dict[str, Any] = {"network": NETWORK, "duty": DUTY, "interval_ms": 10_000}
    async with scripted_broker(session_present=True) as broker:
        board = Board("esp32", micropython, tmp_path, tcp(broker.port), clock="none", **change)
        board.wifi("up")
        (tmp_path / "hurry").touch()
        began = time.monotonic()
        await board.start()
        await eventually(lambda: len(broker.disconnects) >= 3)
        await board.kill()
        awake_ms = (time.monotonic() - began) * 1000  # at most; its sleeps took no time
        switched_on = (tmp_path / "radio").read_bytes().count(b"+")
        assert len(broker.connects) <= switched_on <= len(broker.connects) + 1, "and off where it only samples"
        connects = len(broker.connects)
        await board.start()
        await eventually(lambda: max(boots(broker.publishes[connects:]), default=0) > 1)
        await board.end()
    first = broker.publishes[:connects]
    assert [len(publishes) for publishes in first[:3]] == [1, 3, 3], "after a power cut it connects at once"
    assert seqs([publish for publishes in first for publish in publishes]) == list(range(1, sum(map(len, first)) + 1))
    assert set(boots(first)) == {1}, "a sleep is no new boot"
    moments = [records(publish)[0] for publishes in first for publish in publishes]
    late_ms = [moment["up"] - 10_000 * number for number, moment in enumerate(moments)]
    assert all(0 <= late <= awake_ms for late in late_ms)


def boots(connections: list[list[Publish]]) -> list[int]:
    return [records(publish)[0]["boot"] for publishes in connections for publish in publishes]


@pytest.mark.parametrize("answers", [True, False])
async def test_time_is_asked_before_the_first_tls_connection_and_not_waited_for_in_vain(
    answers: bool, micropython: MicroPython, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    was_set: list[bool] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        was_set.append((tmp_path / "rtc_time").exists())
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.bind(("127.0.0.1", 0))
        asked.setblocking(False)
        port = server.sockets[0].getsockname()[1]
        tls = {"kind": "tls", "host": "127.0.0.1", "port": port, "ca": str(authority.path)}
        program = UNSET.format(port=asked.getsockname()[1], config=str(tmp_path / "device.json"))
        clock = {"kind": "ntp", "host": "127.0.0.1"}
        board = Board("esp32", micropython, tmp_path, tls, program, network=NETWORK, clock=clock)
        board.wifi("up")
        await board.start()
        if answers:
            question, address = await asyncio.get_running_loop().sock_recvfrom(asked, 100)
            assert not was_set
            asked.sendto(answer(question[40:]), address)
        await eventually(lambda: was_set)
        await board.end()
    server.close()
    assert was_set[0] is answers
