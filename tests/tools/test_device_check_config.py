"""A device's configuration, checked before it goes on a board."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tools.cli.device.check_config import BAUD_MAX, BAUD_MIN, WATCHDOG_MS_MAX
from tools.cli.main import make_app
from tools.cli.paths import source_root

KEYS: dict[str, Any] = {
    "client_id": "a",
    "topic": "t",
    "network": {"ssid": "attic", "password": "under the roof"},
    "port": {"host": "h"},
    "flash": {"path": "holdfast"},
    "interval_ms": 10_000,
    "sensors": [],
}
TLS = {"kind": "tls", "host": "h", "ca": "ca.pem"}
UART = {"kind": "uart", "path": "/dev/ttyUSB0"}
DUTY = {"connect_every": 2, "awake_ms": 1000}


def check(folder: Path, *options: str, **changes: Any) -> Result:
    path = folder / "device.json"
    path.write_text(json.dumps({key: value for key, value in {**KEYS, **changes}.items() if value is not None}))
    return CliRunner().invoke(make_app(), ["device", "check-config", str(path), *options])


@pytest.mark.parametrize(
    ("change", "code", "said"), [({}, 0, "ok"), ({"interval_ms": None}, 2, "interval_ms is missing")]
)
def test_configuration_is_checked_on_any_machine(change: dict[str, Any], code: int, said: str, tmp_path: Path) -> None:
    done = check(tmp_path, **change)
    assert done.exit_code == code
    assert said in done.output
    assert str(tmp_path / "device.json") in done.output


@pytest.mark.parametrize(
    ("board", "change", "said"),
    [
        ("rp2", {"flash": {"path": "flash.bin"}}, 'flash.path is flash.bin, expected "storage"'),
        ("esp32", {"flash": {"path": "/flash/store.bin"}}, "flash.path is /flash/store.bin, expected"),
        ("esp32", {"flash": {"path": "spi:1"}}, "flash.path is spi:1, expected"),
        ("rp2", {"flash": {"path": "storage"}, "watchdog_ms": 10_000}, "watchdog_ms is 10000, expected at most 8388"),
        ("esp32", {"watchdog_ms": 10_000}, "watchdog_ms is 10000, expected at most 8388"),
        ("rp2", {"flash": {"path": "storage"}, "duty": DUTY}, "duty is an object, expected none"),
        ("esp32", {"port": UART}, "port.path is /dev/ttyUSB0, expected UART:TX:RX"),
        ("esp32", {"port": {**UART, "path": "1:17:16", "baud": 4_000_000}}, "port.baud is 4000000, expected"),
    ],
)
def test_what_a_kind_of_board_refuses_is_refused_off_the_board(
    board: str, change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert check(tmp_path, **change).exit_code == 0
    done = check(tmp_path, "--board", board, **change)
    assert done.exit_code == 2
    assert f"device.json: {said}" in done.output


def test_all_that_a_board_refuses_is_said_at_once(tmp_path: Path) -> None:
    done = check(tmp_path, "--board", "rp2", watchdog_ms=10_000, duty=DUTY)
    assert [line.split("device.json: ")[1].split()[0] for line in done.output.splitlines()] == [
        "flash.path",
        "watchdog_ms",
        "duty",
    ]


@pytest.mark.parametrize(
    ("board", "change", "said"),
    [
        ("esp32", {"network": None}, "network is missing"),
        ("esp32", {"port": TLS}, "clock is not ntp"),
        ("rp2", {"port": TLS, "flash": {"path": "storage"}, "watchdog_ms": 2000}, "watchdog_ms is 2000"),
        ("esp32", {"sensors": ["host"]}, "sensors has host"),
    ],
)
def test_what_a_board_takes_and_is_likely_a_mistake_is_a_warning(
    board: str, change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    done = check(tmp_path, "--board", board, **change)
    assert done.exit_code == 0
    assert f"warning: {said}" in done.output


@pytest.mark.parametrize(
    ("board", "change"),
    [
        ("esp32", {"watchdog_ms": 8000, "duty": DUTY}),
        ("esp32", {"port": {**UART, "path": "1:17:16"}, "network": None, "flash": {"path": "spi:1:13"}}),
        (
            "rp2",
            {"flash": {"path": "storage"}, "watchdog_ms": 8000, "port": TLS, "clock": {"kind": "ntp", "host": "h"}},
        ),
        ("rp2", {"flash": {"path": "spi:0:17"}}),
    ],
)
def test_what_a_board_takes_is_checked_without_a_warning(board: str, change: dict[str, Any], tmp_path: Path) -> None:
    done = check(tmp_path, "--board", board, **change)
    assert done.exit_code == 0
    assert "warning" not in done.output


def test_the_size_that_a_partition_has_to_have_is_told(tmp_path: Path) -> None:
    done = check(tmp_path, "--board", "esp32")
    assert "partition holdfast of 262,144 bytes" in done.output


def test_the_limits_are_those_of_the_boards() -> None:
    source = (source_root() / "device/boards/microcontroller.py").read_text("utf-8")
    assert f"WATCHDOG_MS_MAX = {WATCHDOG_MS_MAX:_}" in source
    assert f"return {BAUD_MIN} <= baud <= {BAUD_MAX:_}" in source


def test_a_file_that_cannot_be_read_is_named_with_the_reason_alone(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "absent", "No such file or directory"), (tmp_path, "Is a directory")):
        done = CliRunner().invoke(make_app(), ["device", "check-config", str(path)])
        assert (done.exit_code, done.output) == (2, f"holdfast device check-config: {path}: {reason}\n")
