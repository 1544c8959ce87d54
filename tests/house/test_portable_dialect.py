"""Code for boards uses only what MicroPython has: these tests read the code, and run it."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.repository import PORTABLE_FOLDERS, ROOT, name, portable_modules
from tools.lab.micropython import MicroPython

MODULES = {
    *("array", "asyncio", "binascii", "collections", "errno", "ffi", "gc", "hashlib", "io", "json", "machine", "math"),
    *("micropython", "network", "os", "random", "re", "select", "socket", "struct", "sys", "termios", "time", "tls"),
    *("vfs", "dht", "ds18x20", "onewire", *PORTABLE_FOLDERS),
    *("esp", "esp32", "pyb", "rp2"),  # one board's own, so imported where that board is in use
}
_SELF_DOCUMENTING = re.compile(r"\{[^{}:!]*[^{}:!=<>]=\s*[!:}]")


def _call_name(node: ast.AST) -> str:
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "id", getattr(function, "attr", ""))


def _breach(node: ast.AST, source: str) -> str | None:
    match node:
        case ast.Import(names=names) if foreign := {alias.name.partition(".")[0] for alias in names} - MODULES:
            return f"imports {', '.join(foreign)}"
        case ast.ImportFrom(module=module, level=level) if level or (module or "").partition(".")[0] not in MODULES:
            return f"imports from {'.' * level}{module or ''}"
        case ast.Match():
            return "uses match"
        case ast.arguments(posonlyargs=[_, *_]):
            return "has positional-only arguments"
        case ast.ClassDef(keywords=[_, *_]):
            return "has a metaclass or other class keywords"
        case ast.ClassDef(bases=[_, _, *_]) if any(
            getattr(base, "id", "").endswith(("Error", "Exception")) for base in node.bases
        ):
            return "is an exception with two bases"
        case ast.Delete(targets=targets) if any(
            isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice) for target in targets
        ):
            return 'deletes a slice (write buffer[:n] = b"")'
        case ast.Call(args=args) if _call_name(node) == "deque" and len(args) < 2:
            return "makes a deque without a length"
        case ast.BinOp(op=ast.Mult(), left=left, right=right) if "bytearray" in (_call_name(left), _call_name(right)):
            return "multiplies a bytearray"
        case ast.Attribute(attr="_replace" | "Random" as missing):
            return f"uses .{missing}"
        case ast.JoinedStr() if _SELF_DOCUMENTING.search(ast.get_source_segment(source, node) or ""):
            return "uses {name=} in an f-string"
    return None


def breaches(source: str) -> Iterator[tuple[int, str]]:
    """The places in a module that MicroPython rejects, or runs with another result, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if found := _breach(node, source):
            yield getattr(node, "lineno", 0), found


@pytest.mark.parametrize("path", portable_modules(), ids=name)
def test_module_keeps_to_the_portable_dialect(path: Path) -> None:
    assert [f"{name(path)}:{line} {found}" for line, found in breaches(path.read_text())] == []


@pytest.mark.parametrize(
    "source",
    [
        "import typing",
        "from dataclasses import dataclass",
        "from __future__ import annotations",
        "from . import packets",
        "match 1:\n    case 1: pass",
        "def f(a, /): pass",
        "class A(metaclass=type): pass",
        "class A(StoreError, ValueError): pass",
        "del buffer[:4]",
        "deque()",
        "deque(())",
        "bytearray(b'ab') * 4",
        "random.Random(1)",
        "f'{a=}'",
        "f'{a + 1=!r}'",
    ],
)
def test_the_check_finds(source: str) -> None:
    assert list(breaches(source))


@pytest.mark.parametrize("source", ["f'{a == b}'", "f'x={a}'", "f'{a:=^9}'", "deque((), 4)", "del buffer[4]"])
def test_the_check_passes(source: str) -> None:
    assert not list(breaches(source))


@pytest.mark.parametrize("path", portable_modules(), ids=name)
def test_module_is_imported_by_a_real_micropython(path: Path, micropython: MicroPython, tmp_path: Path) -> None:
    """Modules that only boards have come from the simulated board, after the VM's own modules."""
    module = name(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    done = subprocess.run(
        [*micropython.argv, "-c", f"import {module}"],
        cwd=tmp_path,
        env={**micropython.environment(), "MICROPYPATH": f"{ROOT}:.frozen:{ROOT / 'tools/lab/sim/boards'}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_portable_modules() -> None:
    assert {name(path).partition("/")[0] for path in portable_modules()} == set(PORTABLE_FOLDERS), ROOT
