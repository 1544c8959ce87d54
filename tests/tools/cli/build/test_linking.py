"""Modules are made one, and a program means what it meant."""

# ruff: noqa: E501 - each program stands in one line

from pathlib import Path

import pytest

from tests.tools.cli.build.programs import program, run
from tools.cli.build import BuildError, gather, link, set_aside

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
        "def align(text, width): return f'in a rather long line: {text:>{width}}'\n"
    ),
    "wire.subscribe": (
        "from wire import client\nfrom wire.errors import WireError\n"
        "def encode():\n    try: client.encode([-1])\n"
        "    except WireError as error: return f'{error}, said to {client.describe(\"them\")}'\n"
    ),
    "main": (
        "def run():\n    from wire.client import align, describe, encode, subscribe\n"
        "    return encode([1, 2]), subscribe(), describe('x'), align('y', 3)\n"
    ),
}
SAID = "-1 is no number of a packet, said to a rather long text: {'them'} 004"
GROUPS = {"program": ("wire.client",)}


def test_linked_program_does_the_same(tmp_path: Path) -> None:
    linked = link(program(SOURCES), GROUPS).texts()
    assert set(linked) == {"wire", "wire.codec", "wire.subscribe", "main", "program"}
    told = run(tmp_path / "linked", linked)
    assert told == run(tmp_path / "apart", SOURCES)
    assert told == (b"\0\1\0\1\0\2\0\2", SAID, "a rather long text: {'x'} 001", "in a rather long line:   y")


def test_functions_of_one_name_are_told_apart_and_an_import_stands_once() -> None:
    text = link(program(SOURCES), GROUPS).texts()["program"]
    assert "def acks_encode(number)" in text and "def encode(numbers)" in text
    assert text.count("import struct") == 1


def test_gathered_texts_are_pieces_of_one_and_say_the_same(tmp_path: Path) -> None:
    gathered = gather(link(program(SOURCES), GROUPS), "program").texts()
    assert "'{} is no number of a packet" in gathered["program"].splitlines()[0]
    assert gathered["wire.subscribe"].startswith("from program import TEXTS\n")
    assert not any("said to" in text for module, text in gathered.items() if module != "program")
    assert run(tmp_path / "gathered", gathered) == run(tmp_path / "apart", SOURCES)


def test_sentences_in_a_file_say_the_same_and_without_the_file_a_number(tmp_path: Path) -> None:
    made, texts = set_aside(link(program(SOURCES), GROUPS), "program", but=("main",))
    assert not any("no number" in text for text in made.texts().values()) and b"{} is no number of a packet" in texts
    files = {"with": texts, "of another build": texts[:-4] + b"0000", "cut": texts[:-1], "without": None}
    for (folder, content), said in zip(files.items(), (SAID, "text ", "text ", "text "), strict=True):
        (tmp_path / folder).mkdir()
        if content is not None:
            (tmp_path / folder / "program.txt").write_bytes(content)
        told = run(tmp_path / folder, made.texts())
        assert isinstance(told, tuple) and told[0] == b"\0\1\0\1\0\2\0\2" and said in told[1]


def test_modules_of_two_builds_cannot_be_mixed(tmp_path: Path) -> None:
    first, _ = set_aside(link(program(SOURCES), GROUPS), "program", but=("main",))
    other, _ = set_aside(link(program(SOURCES | {"wire.more": "def more(): pass\n"}), GROUPS), "program", but=("main",))
    with pytest.raises(ImportError, match="TEXT"):
        run(tmp_path, first.texts() | {"program": other.texts()["program"]})


def test_texts_that_are_data_or_compared_are_no_sentences() -> None:
    data = "def write(a, b): return f'{a:08x} {b} {a:04d}\\n', a == 'a word and another', f'{a:d} ({b:08x})'\n"
    made, texts = set_aside(program({"data": data, "program": ""}), "program", but=())
    assert (
        made.texts()["data"] == program({"data": data}).texts()["data"]
        and texts.startswith(b"TEXT")
        and len(texts) == len("TEXT0000")
    )


A = "def encode(): return 'a'\ndef tell(): return encode()\n"
MEANINGS = {
    "two equal statements": ({"a": "made = []\n", "b": "from a import made\ncount = [made.append(1)]\n", "c": "from a import made\ncount = [made.append(1)]\n",
                              "m": "import sys\nfrom a import made\nfrom b import count as b\nfrom c import count as c\ndef tell(): return len(made)\n"}, 2),
    "a local name that is another's global": ({"a": A, "m": "from a import tell as a_tell\ndef tell():\n    encode = 'm'\n    return a_tell(), encode\n"}, ("a", "m")),
    "a local name that is what a global is called now": (
        {"a": A, "m": "from a import tell as a_tell\ndef encode(): return 'm'\ndef tell():\n    m_encode = 1\n    return a_tell(), encode(), m_encode\n"}, ("a", "m", 1)),
    "an argument that is a renamed global": ({"a": A, "m": "from a import tell as a_tell\ndef encode(): return 'm'\ndef same(encode): return encode\ndef tell(): return same(2), same(encode=3), a_tell(), encode()\n"}, (2, 3, "a", "m")),
    "a class's attribute that is called like a renamed global": (
        {"a": A, "m": "from a import tell as a_tell\ndef encode(): return 'm'\nclass Own:\n    encode = 3\n    def tell(self): return encode(), self.encode\ndef tell(): return Own().tell(), a_tell()\n"}, (("m", 3), "a")),
    "an argument that is called like an imported module": (
        {"a": A, "m": "import sys\nfrom p import b\ndef f(b): return b\ndef tell(): return f(1), b.tell()\n", "p": "", "p.b": "def tell(): return 'b'\n"}, (1, "b")),
    "a local name that hides what a module is asked for": (
        {"p": "", "p.b": "def told(): return 'b'\n", "m": "from p import b\ndef tell():\n    told = 1\n    return b.told(), told\n"}, ("b", 1)),
    "a name with an alias that a local name hides": (
        {"a": A, "m": "from a import encode as write\ndef tell():\n    encode = 1\n    return write(), encode\n"}, ("a", 1)),
    "a name that is built in": ({"a": "def sum(values): return 'a'\ndef tell(): return sum([])\n", "m": "from a import tell as a_tell\ndef tell(): return sum([1, 2]), a_tell()\n"}, (3, "a")),
    "a nonlocal name": ({"a": A, "m": "from a import tell as a_tell\ndef encode(): return 'm'\ndef tell():\n    encode = 1\n    def f():\n        nonlocal encode\n        encode = 2\n    f()\n    return encode, a_tell()\n"}, (2, "a")),
    "a global that a function binds": ({"a": "encode = 5\ndef tell(): return encode\n", "m": "from a import tell as a_tell\nencode = 1\ndef change():\n    global encode\n    encode = 2\ndef tell():\n    change()\n    return encode, a_tell()\n"}, (2, 5)),
    "a class that is loaded by a computed name": (
        {"d": "", "d.base": "class Driver: kind = 'base'\n", "d.adc": "from d.base import Driver\nclass Adc(Driver): pass\n",
         "m": "from d.base import Driver\ndef tell():\n    name = 'Ad' + 'c'\n    made = getattr(__import__('d.' + 'adc', None, None, (name,)), name)\n    return issubclass(made, Driver), made.kind\n"}, (True, "base")),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANINGS)
def test_name_means_the_same_after_linking(name: str, tmp_path: Path) -> None:
    sources, said = MEANINGS[name]
    sources = {**sources, "main": "def run():\n    from m import tell\n    return tell()\n"}
    assert run(tmp_path / "as-written", sources) == said
    linked = link(program(sources), {"program": ("m",)})
    assert run(tmp_path / "linked", linked.texts()) == said
    assert run(tmp_path / "gathered", gather(linked, "program").texts()) == said


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("from wire import errors\nkept = [errors]\n", 2, "only its attributes"),
        ("from wire.errors import Missing\n", 1, "does not define Missing"),
        ("from wire import errors\ndef f():\n    errors.count = 1\n", 3, "binds a name of a linked module"),
        ("from wire.errors import WireError\ndef f():\n    global WireError\n    WireError = None\n", 4, "imported and bound again"),
        ("from wire.errors import count\n", 1, "bound several times"),
        ("import sys\nif sys.platform == 'esp32':\n    LIMIT = 1\n", 2, "without conditions"),
        ("try:\n    import machine\nexcept ImportError:\n    machine = None\n", 1, "without conditions"),
        ("def f(): return __name__\n", 1, "__name__ has another value"),
        ("from time import time as struct\n", 1, "struct is time.time here"),
    ],
)  # fmt: skip
def test_what_one_module_cannot_express_is_refused_with_file_and_line(text: str, line: int, why: str) -> None:
    errors = (
        "import struct\ncount = 0\ndef add():\n    global count\n    count += 1\nclass WireError(Exception): pass\n"
    )
    sources = {"wire": "", "wire.errors": errors, "wire.m": f"{text}\nfrom wire.errors import WireError as other\n"}
    with pytest.raises(BuildError, match=rf"^wire/m\.py:{line}: .*{why}"):
        link(program(sources), {"program": ("wire.m",)})


def test_name_of_the_gathered_text_is_refused_where_a_module_has_it() -> None:
    with pytest.raises(BuildError, match=r"^m\.py:.*TEXTS"):
        gather(program({"m": "TEXTS = 'mine'\n"}), "m")
