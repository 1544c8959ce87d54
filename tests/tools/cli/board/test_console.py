"""What is read of a board's answer about itself."""

from dataclasses import replace

import pytest

from tools.cli.board.console import Answer, check_heap
from tools.cli.board.errors import Refused

KIB = 1024
ANSWER = Answer(
    platform="esp32",
    version=(1, 27, 0),
    machine="Generic ESP32 module with ESP32",
    free=60 * KIB,
    used=4 * KIB,
    idf=110 * KIB,
    has_romfs=False,
    names=("boot.py",),
    files=1792 * KIB,
    storage=0,
)


def test_heap_outside_of_micropython_counts() -> None:
    check_heap(ANSWER)


def test_board_with_too_little_heap_is_told_what_would_fit() -> None:
    with pytest.raises(Refused, match=r"has 104 KiB of heap, .* needs 113\. Frozen into a MicroPython .* needs 54"):
        check_heap(replace(ANSWER, idf=40 * KIB))
