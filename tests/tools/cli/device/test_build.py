"""`holdfast device build`: what goes on a board, and that it runs."""

import gc
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from device.config import load
from tests.support.command import holdfast
from tools.cli.build.modules import Board, needed
from tools.cli.device.build import build_board, compile_for_heap
from tools.cli.paths import source_root


def names(board: Board) -> set[str]:
    return {path.relative_to(source_root()).as_posix() for path in needed(board)}


@pytest.mark.parametrize(
    ("board", "theirs", "others"),
    [
        (Board.ESP32, "esp32", {"rp2", "unix"}),
        (Board.RP2, "rp2", {"esp32", "unix"}),
        (Board.UNIX, "unix", {"esp32", "rp2", "wifi", "microcontroller"}),
    ],
)
def test_board_gets_its_own_modules_and_no_others(board: Board, theirs: str, others: set[str]) -> None:
    found = names(board)
    assert {f"device/boards/{theirs}.py", "device/ports/tls.py", "device/sensors/bme280.py"} <= found
    assert not found & {f"device/boards/{other}.py" for other in others}
    assert not found & {"wire/connection/server.py", "wire/bulk/connection.py"}


@dataclass
class Built:
    """A build for an ESP32, with the sizes of the files in its `lib`."""

    folder: Path
    sizes: dict[str, int]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """One build for the tests that only read it: a build takes seconds, and no test makes more than one."""
    folder = tmp_path_factory.mktemp("built")
    return Built(folder, build_board(Board.ESP32, folder))


def test_build_leaves_the_garbage_collector_as_it_was(built: Built) -> None:
    assert gc.isenabled()


def test_frozen_modules_are_the_sources_as_they_are(built: Built) -> None:
    frozen = built.folder / "frozen"
    manifest = (frozen / "manifest.py").read_text().splitlines()
    assert manifest == [f'package("{name}", opt=3)' for name in ("wire", "flash_store", "device")] + [
        'module("holdfast.py", opt=3)'
    ]
    library = "device/library.py"
    for name in names(Board.ESP32):
        on_board = "holdfast.py" if name == library else name
        assert (frozen / on_board).read_text() == (source_root() / name).read_text()


def test_same_sources_make_the_same_bytes_and_mip_finds_each_file(built: Built, tmp_path: Path) -> None:
    first, again, sizes = built.folder, tmp_path, built.sizes
    assert build_board(Board.ESP32, again) == sizes
    for path in [*(f"lib/{name}" for name in sizes), "package.json"]:
        assert (first / path).read_bytes() == (again / path).read_bytes()
    package = json.loads((first / "package.json").read_text())
    assert package["urls"] == [[name, f"lib/{name}"] for name in sizes]


CONFIG = {
    "client_id": "garage-1",
    "topic": "telemetry/garage",
    "network": {"ssid": "attic", "password": None},
    "port": {"host": "192.168.1.10"},
    "flash": {"path": "holdfast"},
    "interval_ms": 2000,
    "sensors": [{"kind": "adc", "pin": 34, "full_scale_mv": 3300}],
}


def write(folder: Path, **keys: object) -> Path:
    """Writes a configuration."""
    (folder / "device.json").write_text(json.dumps(CONFIG | keys))
    return folder / "device.json"


@pytest.mark.parametrize(
    ("keys", "wanted", "unwanted"),
    [
        (
            {},
            {"device/ports/tcp", "device/sensors/adc"},
            {"device/ports/tls", "device/sensors/bme280"},
        ),
        ({"port": {"kind": "tls", "host": "a", "ca": "ca.der"}}, {"device/ports/tls", "device/ports/tcp"}, set()),
        (
            {"port": {"kind": "uart", "path": "1:17:16"}},
            {"device/ports/uart", "wire/link/stream"},
            {"device/ports/tcp"},
        ),
        ({"clock": {"kind": "ntp", "host": "a"}}, {"device/sntp"}, {"device/readings/senml_cbor"}),
        ({"payload": "cbor"}, {"device/readings/senml_cbor"}, {"device/readings/senml"}),
        ({"qos": 0}, {"device/mqtt/qos0_queue"}, set()),
        (
            {"commands": "to/garage"},
            {"device/mqtt/inbox", "device/ports/tls", "device/ports/uart", "device/mqtt/scram"},
            {"device/mqtt/qos0_queue"},
        ),
        ({"flash": {"path": "spi:1:13"}}, {"flash_store/devices/spi_nor"}, {"flash_store/devices/ram"}),
        ({"duty": {"connect_every": 2, "awake_ms": 9000}, "interval_ms": 60_000}, {"device/sleeper"}, {"device/sntp"}),
    ],
)
def test_configuration_gets_the_modules_that_its_keys_ask_for(
    keys: dict[str, object], wanted: set[str], unwanted: set[str], tmp_path: Path
) -> None:
    config = load(str(write(tmp_path, **keys)))
    found = {path.relative_to(source_root()).with_suffix("").as_posix() for path in needed(Board.ESP32, config)}
    assert wanted <= found and not unwanted & found
    assert {"device/main", "device/library", "device/config", "device/safe_mode", "device/failed"} <= found


def test_files_for_the_heap_take_less_with_a_configuration_and_much_less_than_as_written(
    built: Built, tmp_path: Path
) -> None:
    all_of_them = sum(built.sizes.values())
    needed_ones = sum(map(len, compile_for_heap(Board.ESP32, load(str(write(tmp_path)))).values()))
    as_written = sum(build_board(Board.ESP32, tmp_path / "as-written", as_written=True).values())
    assert needed_ones < 0.8 * all_of_them < 0.8 * 0.85 * as_written


def test_build_for_a_configuration_has_no_module_that_it_does_not_need(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = holdfast("device", "build", "--board", "esp32", "--config", str(write(tmp_path)), "--out", str(out))
    assert done.exit_code == 0, done.stderr
    assert (out / "lib/device/ports/tcp.mpy").exists() and (out / "frozen/device/ports/tcp.py").exists()
    assert not (out / "lib/device/ports/tls.mpy").exists() and not (out / "frozen/device/ports/tls.py").exists()
    image = (out / "holdfast.romfs").read_bytes()
    assert b"tcp.mpy" in image and b"tls.mpy" not in image


def test_configuration_with_an_error_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    path = write(tmp_path, qos=3)
    done = holdfast("device", "build", "--board", "esp32", "--config", str(path), "--out", str(tmp_path / "out"))
    assert done.exit_code == 2
    assert "qos is 3" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    done = holdfast("device", "build", "--board", "rp2", "--out", str(tmp_path))
    assert done.exit_code == 2
    assert "nothing was changed" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
