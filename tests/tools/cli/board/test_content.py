"""What goes into a board's file system."""

import json
from pathlib import Path
from typing import Any

import pytest
from littlefs import LittleFS

from device.config import Config, load
from tools.cli.board.content import MARK, board_files
from tools.cli.board.errors import Refused
from tools.cli.board.esp.image import HEAD_BYTES, image_pieces, make_image
from tools.cli.board.esp.root import names_in_root

KIB = 1024
SECTOR, SIZE, AT = 4 * KIB, 256 * KIB, 0x200000
TLS = {"kind": "tls", "host": "barn", "ca": "authority.der", "certificate": "keys/own.der", "key": "/keys/own.key"}


def configuration(folder: Path, port: dict[str, Any]) -> tuple[Path, Config]:
    path = folder / "device.json"
    keys = {
        "client_id": "garage-1",
        "topic": "telemetry/garage",
        "port": port,
        "flash": {"path": "holdfast"},
        "interval_ms": 1000,
        "sensors": [],
    }
    path.write_text(json.dumps(keys))
    return path, load(str(path))


def mounted(image: bytes) -> LittleFS:
    files = LittleFS(block_size=SECTOR, block_count=SIZE // SECTOR, prog_size=32, read_size=32, mount=False)
    files.context.buffer[:] = image
    files.mount()
    return files


def test_files_that_the_port_names_lie_beside_the_configuration_and_keep_their_names(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    for name in ("authority.der", "keys/own.der", "keys/own.key"):
        (tmp_path / name).write_bytes(name.encode())
    files = board_files(*configuration(tmp_path, TLS), {"holdfast.mpy": b"M"})
    assert set(files) == {
        "lib/holdfast.mpy",
        "main.py",
        "device.json",
        "authority.der",
        "keys/own.der",
        "keys/own.key",
        MARK,
    }
    assert files["keys/own.key"] == b"keys/own.key"
    assert b"keys" not in files[MARK]


def test_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"names the file authority\.der, and .* cannot be read: No such file"):
        board_files(*configuration(tmp_path, TLS), {})


@pytest.mark.parametrize("name", ["../authority.der", "main.py", "/device.json"])
def test_file_of_a_name_that_is_taken_or_leads_out_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="expected a name of its own on the board"):
        board_files(*configuration(tmp_path, TLS | {"ca": name}), {})


def test_image_has_the_files_and_its_root_is_written_last_and_twice() -> None:
    files = {"lib/a/b.mpy": b"b" * 9000, "main.py": b"pass\n", MARK: b"{}"}
    image = make_image(files, SIZE)
    assert image[:SECTOR] == image[SECTOR:HEAD_BYTES]
    pieces = image_pieces(image, AT)
    assert [at for at, _ in pieces[-2:]] == [AT + SECTOR, AT]
    written = bytearray(b"\x55" * SIZE)  # what was there before
    for at, content in pieces:
        written[at - AT : at - AT + len(content)] = content
    found = mounted(bytes(written))
    for name, content in files.items():
        with found.open(name, "rb") as file:
            assert file.read() == content
    without_first = b"\x00" * SECTOR + bytes(written[SECTOR:])
    assert sorted(mounted(without_first).listdir("/")) == ["holdfast.json", "lib", "main.py"]


def test_a_root_that_is_cut_anywhere_names_no_file_without_the_mark(tmp_path: Path) -> None:
    image = make_image(board_files(*configuration(tmp_path, {"host": "barn"}), {"holdfast.mpy": b"M"}), SIZE)
    for written in range(SECTOR):
        cut = image[:written].ljust(SECTOR, b"\xff")
        names = names_in_root(cut + b"\xff" * SECTOR, SECTOR)
        assert not names or MARK in names, (written, names)


def test_files_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Refused, match="300 KiB of files do not fit into the board's 256 KiB"):
        make_image({"large": bytes(300 * KIB)}, SIZE)


def test_names_in_the_root_are_read_from_its_first_sectors_alone() -> None:
    files = mounted(make_image({"main.py": b"1", "lib/x.mpy": b"2"}, SIZE))
    for number in range(200):  # so that the root moves between its sectors
        with files.open("notes.txt", "w") as file:
            file.write(f"{number}")
    files.remove("main.py")
    head = bytes(files.context.buffer[:HEAD_BYTES])
    assert names_in_root(head, SECTOR) == ["lib", "notes.txt"]
    assert names_in_root(b"\xff" * HEAD_BYTES, SECTOR) is None
    assert names_in_root(b"\x00" * HEAD_BYTES, SECTOR) is None
