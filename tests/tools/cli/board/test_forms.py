"""Which form of the firmware fits a board's heap."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from device.config import Config, load
from tools.cli.board.console import Answer
from tools.cli.board.errors import Refused
from tools.cli.board.forms import NEEDED_KIB, TLS_KIB, Form, check_fits, needed_kib
from tools.cli.paths import source_root

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
TLS = {"kind": "tls", "host": "barn", "ca": "ca.der"}
PLAIN, WHOLE = NEEDED_KIB[Form.LOADED][False, False], NEEDED_KIB[Form.LOADED][True, True]
ROWS = {Form.LOADED: "from `.mpy` files", Form.IN_PLACE: "in place, from a ROMFS", Form.FROZEN: "frozen"}
COLUMNS = {
    (False, False): "full store",
    (False, True): "full store, commands",
    (True, False): "full store, TLS",
    (True, True): "full store, TLS, commands",
}


def configuration(folder: Path, **keys: Any) -> Config:
    given = {
        "client_id": "garage-1",
        "topic": "telemetry/garage",
        "port": {"host": "barn"},
        "flash": {"path": "holdfast"},
        "interval_ms": 1000,
        "sensors": [],
    }
    (folder / "device.json").write_text(json.dumps(given | keys))
    return load(str(folder / "device.json"))


def board(kib: int, **what: Any) -> Answer:
    """A board with this heap."""
    return replace(ANSWER, free=kib * KIB - ANSWER.used, idf=0, **what)


def refusal(answer: Answer, keys: Config) -> str:
    with pytest.raises(Refused) as refused:
        check_fits(answer, keys)
    return str(refused.value)


def test_heap_outside_of_micropython_counts(tmp_path: Path) -> None:
    said = check_fits(ANSWER, configuration(tmp_path))
    assert said == f"the firmware, as modules that a board loads, needs {PLAIN} KiB of heap, and the board has 174"
    assert f"needs {PLAIN} KiB of heap, and the board has 64" in refusal(
        replace(ANSWER, idf=0), configuration(tmp_path)
    )


def test_what_the_configuration_asks_for_counts(tmp_path: Path) -> None:
    keys = configuration(tmp_path, port=TLS, commands="to/garage")
    assert check_fits(board(WHOLE), keys).startswith("the firmware with TLS and commands, as modules")
    said = refusal(board(WHOLE - 1), keys)
    without_tls = NEEDED_KIB[Form.LOADED][False, True]
    without_commands = NEEDED_KIB[Form.LOADED][True, False]
    assert (f"With commands alone it needs {without_tls}" in said) == (without_tls < WHOLE)
    assert (f"With TLS alone it needs {without_commands}" in said) == (without_commands < WHOLE)


def test_tls_takes_the_heap_of_a_board_that_has_no_other(tmp_path: Path) -> None:
    keys = configuration(tmp_path, port=TLS)
    needed = NEEDED_KIB[Form.LOADED][True, False] + TLS_KIB
    assert needed_kib(Form.LOADED, "rp2", has_tls=True, has_commands=False) == needed
    assert check_fits(board(needed, platform="rp2"), keys)
    assert f"Without TLS and commands it needs {PLAIN}" in refusal(board(needed - 1, platform="rp2"), keys)


def test_board_with_too_little_heap_is_told_what_would_fit(tmp_path: Path) -> None:
    keys = configuration(tmp_path)
    frozen, in_place = NEEDED_KIB[Form.FROZEN][False, False], NEEDED_KIB[Form.IN_PLACE][False, False]
    said = refusal(board(PLAIN - 1), keys)
    assert f"has {PLAIN - 1}. Frozen into a MicroPython that you build it needs {frozen}" in said
    assert "ROMFS" not in said and "too much" not in said and "PSRAM" in said
    assert said.endswith("MicroPython is on the board, and the firmware was not written")
    assert f"Executed in place from a ROMFS it needs {in_place}" in refusal(board(PLAIN - 1, has_romfs=True), keys)
    assert f"it needs {frozen}, which is too much as well" in refusal(board(frozen - 1), keys)


def test_numbers_are_those_of_the_page(tmp_path: Path) -> None:
    page = (source_root() / "docs/reference/commands/bench.md").read_text()
    table = re.findall(
        r"^\| (.*?) \|$", page.partition("the smallest heap in KiB is:")[2].partition("`flash_store` alone")[0], re.M
    )
    head, *rows = [[cell.strip() for cell in f" {row} ".split("|")] for row in table]
    figures = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    for form, by_keys in NEEDED_KIB.items():
        for keys, kib in by_keys.items():
            assert figures[ROWS[form]][COLUMNS[keys]] == str(kib), (form, keys)
