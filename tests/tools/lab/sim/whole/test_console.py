"""The console of a simulated board against the real mpremote, and by hand."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.board_tools import NEEDS_BOARD_TOOLS, mpremote
from tools.lab.micropython import MicroPython
from tools.lab.sim.loader.chips import ESP32
from tools.lab.sim.whole.esp import WholeBoard
from tools.lab.sim.whole.firmware_file import make_firmware

pytestmark = NEEDS_BOARD_TOOLS
DEADLINE_S = 20.0
BUSY = """
import gc, time
print('busy', turn)
while True:
    x = [bytearray(99) for _ in range(99)]
    gc.collect()
    time.sleep_ms(1)
"""


@pytest.fixture
def board(tmp_path: Path, micropython: MicroPython) -> Iterator[WholeBoard]:
    """A board with MicroPython, at its prompt."""
    board = WholeBoard(tmp_path / "board", micropython=micropython)
    board.flash.program(ESP32.bootloader_at, make_firmware(ESP32, app_bytes=1024))
    with board:
        board.wait_printed(b">>> ")
        yield board


@pytest.fixture
def keys(board: WholeBoard) -> Iterator[int]:
    """The port, opened as a terminal program does."""
    port = os.open(board.port, os.O_RDWR | os.O_NOCTTY)
    yield port
    os.close(port)


def put(board: WholeBoard, name: str, text: str) -> None:
    """Copies a file to the board."""
    path = board.folder / "put"
    path.write_text(text)
    mpremote(board.port, "fs", "cp", str(path), f":{name}")


def test_program_runs_and_its_output_returns(board: WholeBoard) -> None:
    program = "import sys; print(sys.platform, sys.implementation._machine)"
    assert mpremote(board.port, "exec", program).stdout == "esp32 Simulated ESP32 module with ESP32\n"
    assert mpremote(board.port, "eval", "6 * 7").stdout == "42\n"


def test_error_of_a_program_is_told_without_lines_of_the_simulation(board: WholeBoard) -> None:
    done = mpremote(board.port, "exec", "def f():\n  1/0\nf()", code=1)
    assert (done.stdout + done.stderr).replace("\r", "").strip() == (
        'Traceback (most recent call last):\n  File "<stdin>", line 3, in <module>\n'
        '  File "<stdin>", line 2, in f\nZeroDivisionError: divide by zero'
    )


def test_files_go_to_the_board_and_back(board: WholeBoard, tmp_path: Path) -> None:
    content = bytes(range(256)) * 40
    (tmp_path / "sent").write_bytes(content)
    mpremote(board.port, "fs", "mkdir", ":lib")
    mpremote(board.port, "fs", "cp", str(tmp_path / "sent"), ":lib/data.bin")
    mpremote(board.port, "fs", "cp", ":lib/data.bin", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == content
    assert "10240 data.bin" in mpremote(board.port, "fs", "ls", ":lib").stdout


def test_files_are_in_the_flash_and_main_runs_after_the_reset(board: WholeBoard) -> None:
    put(board, "boot.py", "print('boot ran')")
    put(board, "main.py", "print('main ' + 'ran')")
    mpremote(board.port, "reset")
    board.wait_printed(b"boot ran\r\nmain ran\r\nMicroPython")
    board.reset()
    board.wait_printed(b"boot ran\r\nmain ran\r\nMicroPython")


def test_running_program_is_interrupted(board: WholeBoard) -> None:
    put(board, "main.py", "import time\nwhile True:\n    print('on')\n    time.sleep(60)\n")
    mpremote(board.port, "reset")
    board.wait_printed(b"on\r\n")
    assert mpremote(board.port, "exec", "print('off')").stdout == "off\n"


def test_console_allocates_after_ctrl_c_has_ended_a_program_that_allocates(board: WholeBoard, keys: int) -> None:
    put(board, "busy.py", BUSY)
    for turn in range(10):
        os.write(keys, b"turn = %d; exec(open('busy.py').read())\r" % turn)
        board.wait_printed(b"busy %d\r\n" % turn)
        os.write(keys, b"\x03print('ends', %d + len(bytearray(4000)))\r" % turn)
        board.wait_printed(b"ends %d\r\n" % (4000 + turn))


def test_soft_reset_runs_boot_again_and_forgets_what_was_set(board: WholeBoard) -> None:
    mpremote(board.port, "resume", "exec", "x = 1")
    assert mpremote(board.port, "resume", "exec", "print(x)").stdout == "1\n"
    mpremote(board.port, "soft-reset")
    assert "NameError" in mpremote(board.port, "resume", "exec", "print(x)", code=1).stdout


def test_folder_of_the_host_is_mounted(board: WholeBoard, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/hello.py").write_text("print('from the host')")
    told = mpremote(board.port, "mount", str(tmp_path / "there"), "exec", "import hello").stdout
    assert "from the host\n" in told  # mpremote's own line about the folder comes before or after it


def test_console_serves_a_network_port_too(board: WholeBoard) -> None:
    assert mpremote(board.url, "exec", "print(7)").stdout == "7\n"


def test_host_without_raw_paste_is_served(board: WholeBoard, keys: int) -> None:
    os.write(keys, b"\r\x01")
    board.wait_printed(b"raw REPL; CTRL-B to exit\r\n>")
    os.write(keys, b"print('a' + 'b')\x04")
    board.wait_printed(b"OKab\r\n\x04\x04>")
    os.write(keys, b"1/0\x04")
    board.wait_printed(b"ZeroDivisionError: divide by zero\r\n\x04>")
    os.write(keys, b"\x02")
    board.wait_printed(b'Type "help()" for more information.\r\n>>> ')


def test_statements_are_typed_over_several_lines(board: WholeBoard, keys: int) -> None:
    os.write(keys, b"for x in (1, 2):\r  print(x * 1000)\r\r")
    board.wait_printed(b"1000\r\n2000\r\n>>> ")
    os.write(keys, b"y = [5,\r6]\ry\r")
    board.wait_printed(b"[5, 6]\r\n>>> ")
    os.write(keys, b"\x05if y:\r  print('pasted'.upper())\r\x04")
    board.wait_printed(b"PASTED\r\n>>> ")


def test_ctrl_c_twice_ends_a_program_and_not_the_board(board: WholeBoard, keys: int) -> None:
    starts = board.starts
    os.write(keys, b"import time\rprint('be' + 'gins'); time.sleep(60)\r")
    board.wait_printed(b"begins")
    os.write(keys, b"\x03\x03")
    board.wait_printed(b"KeyboardInterrupt: \r\n>>> ")
    assert board.starts == starts


def test_machine_reset_and_deep_sleep_start_the_program_again(board: WholeBoard) -> None:
    put(board, "main.py", "import machine\nprint('cause', machine.reset_cause())\n")
    mpremote(board.port, "exec", "--no-follow", "import machine; machine.reset()")
    board.wait_printed(b"cause 2")
    mpremote(board.port, "resume", "exec", "--no-follow", "import machine; machine.deepsleep(50)")
    board.wait_printed(b"cause 4")


def test_watchdog_resets_a_program_that_does_not_feed_it(board: WholeBoard) -> None:
    put(board, "main.py", "import machine\nprint('cause', machine.reset_cause())\n")
    mpremote(board.port, "exec", "--no-follow", "import machine; machine.WDT(timeout=100)\nwhile True: pass")
    board.wait_printed(b"cause 3")


def test_what_a_board_prints_while_no_program_has_the_port_open_is_lost(board: WholeBoard) -> None:
    put(board, "main.py", "for number in range(5000):\n    print('line', number)\n")
    mpremote(board.port, "reset")
    board.wait_printed(b"line 4999\r\n")
    port = os.open(board.port, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    os.write(port, b"print(1 + 1)\r")
    board.wait_printed(b"\r\n2\r\n>>> ")
    seen = b""
    deadline = time.monotonic() + DEADLINE_S
    while b"\r\n2\r\n>>> " not in seen and time.monotonic() < deadline:
        try:
            seen += os.read(port, 4096)
        except BlockingIOError:
            time.sleep(0.01)
    os.close(port)
    assert b"line" not in seen
