"""Modules are made one, and the program does what it did."""

import sys
from pathlib import Path

import pytest

from tools.linking import LinkError, link
from tools.pruning import prune
from tools.texts import gather

SOURCES = {
    "wire": "",
    "wire.errors": "class WireError(Exception): pass\n",
    "wire.codec": "",
    "wire.codec.acks": (
        "import struct\nfrom wire.errors import WireError\n"
        "def encode(number):\n    if number < 0: raise WireError(f'{number} is no number of a packet')\n"
        "    return struct.pack('>H', number)\n"
    ),
    "wire.client": (
        "import struct\nfrom wire.codec import acks\nfrom wire.codec.acks import encode as write\n"
        "def encode(numbers):\n    return b''.join([acks.encode(one) + write(one) for one in numbers])\n"
        "def subscribe():\n    from wire.subscribe import encode\n    return encode()\n"
        "def describe(text): return f'a rather long text: {{{text!r}}} {len(text):03d}'\n"
        "def forgotten(): pass\n"
    ),
    "wire.subscribe": (
        "from wire import client\nfrom wire.errors import WireError\n"
        "def encode():\n    try: client.encode([-1])\n"
        "    except WireError as error: return f'{error}, said to {client.describe(\"them\")}'\n"
    ),
    "main": (
        "def run():\n    from wire.client import describe, encode, subscribe\n"
        "    return encode([1, 2]), subscribe(), describe('x')\n"
    ),
}
SAID = "-1 is no number of a packet, said to a rather long text: {'them'} 004"
GROUPS = {"program": ("wire.client",)}


def run(folder: Path, modules: dict[str, str]) -> object:
    for module, text in modules.items():
        path = folder / module.replace(".", "/")
        path = (
            path / "__init__.py"
            if any(other.startswith(f"{module}.") for other in modules)
            else path.with_suffix(".py")
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    names = {name.partition(".")[0] for name in modules}
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in names}
    sys.path.insert(0, str(folder))
    try:
        return __import__("main").run()
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] in names]:
            del sys.modules[name]
        sys.modules.update(kept)


def test_linked_program_does_the_same(tmp_path: Path) -> None:
    linked = link(SOURCES, GROUPS)
    assert set(linked) == {"wire", "wire.codec", "wire.subscribe", "main", "program"}
    told = run(tmp_path / "linked", linked)
    assert told == run(tmp_path / "apart", SOURCES)
    assert told == (b"\0\1\0\1\0\2\0\2", SAID, "a rather long text: {'x'} 001")


def test_functions_of_one_name_are_told_apart_and_an_import_stands_once() -> None:
    program = link(SOURCES, GROUPS)["program"]
    assert "def encode(number)" in program and "def client_encode(numbers)" in program
    assert program.count("import struct") == 1


def test_what_nobody_names_is_pruned_and_the_rest_does_the_same(tmp_path: Path) -> None:
    pruned = prune(link(SOURCES, GROUPS), ("main",))
    assert "forgotten" not in pruned["program"]
    assert run(tmp_path / "pruned", pruned) == run(tmp_path / "apart", SOURCES)


def test_module_that_reads_its_own_names_is_not_pruned() -> None:
    text = "SUCCESS = 0\ndef names(): return list(globals())\n"
    assert prune({"reasons": text, "main": "from reasons import names\n"}, ("main",))["reasons"].startswith(
        "SUCCESS = 0"
    )


def test_gathered_texts_are_pieces_of_one_and_say_the_same(tmp_path: Path) -> None:
    gathered = gather(link(SOURCES, GROUPS), "program")
    assert "'{} is no number of a packet" in gathered["program"].splitlines()[0]
    assert gathered["wire.subscribe"].startswith("from program import TEXTS\n")
    assert not any("said to" in text for module, text in gathered.items() if module != "program")
    assert run(tmp_path / "gathered", gathered) == run(tmp_path / "apart", SOURCES)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("from wire import errors\ndef f(errors): return errors\n", "argument"),
        ("from wire import errors\nkept = [errors]\n", "more than the module"),
        ("from wire.errors import Missing\n", "which has none"),
    ],
)
def test_what_cannot_be_said_in_one_module_is_refused(text: str, why: str) -> None:
    with pytest.raises(LinkError, match=why):
        link({"wire": "", "wire.errors": SOURCES["wire.errors"], "m": text}, {"program": ("m",)})
