"""Arguments get short names, and a program means what it meant."""

# ruff: noqa: E501 - each program stands in one line

from pathlib import Path

import pytest

from tests.tools.cli.build.programs import program, run
from tools.cli.build import shorten

MEANINGS = {
    "an argument and a local name": ({"m": "def add(first, second):\n    a = first\n    return a + second\ndef tell(): return add(1, 2)\n"}, 3),
    "a name that a call says": ({"m": "def same(value, other=1): return value, other\ndef tell(): return same(2, other=3)\n"}, (2, 3)),
    "a closure": ({"m": "def make(start):\n    def add(value):\n        nonlocal start\n        start += value\n        return start\n    return add\ndef tell():\n    add = make(5)\n    return add(1), add(2)\n"}, (6, 8)),
    "a function within another": ({"m": "def outer(value):\n    def inner(other): return value, other\n    return inner(value + 1)\ndef tell(): return outer(1)\n"}, (1, 2)),
    "a global that is called as the new name": ({"m": "a = 7\ndef add(value): return value + a\ndef tell(): return add(1)\n"}, 8),
    "a lambda's, and a comprehension's": ({"m": "def tell(): return (lambda value: [value + one for one in range(value)])(2)\n"}, [2, 3]),
    "an argument that is bound again": ({"m": "def f(value, error):\n    for value in range(3): pass\n    try: raise ValueError(value)\n    except ValueError as error: text = str(error)\n    return value, text\ndef tell(): return f(1, 2)\n"}, (2, "2")),
    "an argument that an import binds again": ({"m": "def f(sys):\n    import sys\n    return sys.maxsize > 0\ndef tell(): return f(1)\n"}, True),
    "a method, and what it overrides": ({"m": "class Base:\n    def say(self, text): return text\nclass Own(Base):\n    def say(self, words): return super().say(words) + '!'\ndef tell(): return Own().say('x')\n"}, "x!"),
    "defaults that outer arguments give": ({"m": "def outer(value):\n    def inner(other=value): return other\n    return inner()\ndef tell(): return outer(4)\n"}, 4),
    "a deleted argument": ({"m": "def f(value):\n    kept = value\n    del value\n    return kept\ndef tell(): return f(1)\n"}, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANINGS)
def test_call_means_the_same_with_short_names(name: str, tmp_path: Path) -> None:
    sources, said = MEANINGS[name]
    sources = {**sources, "main": "def run():\n    from m import tell\n    return tell()\n"}
    assert run(tmp_path / "as-written", sources) == said
    assert run(tmp_path / "shortened", shorten(program(sources), ()).texts()) == said


def test_names_stay_where_others_may_say_them() -> None:
    text = "def start(path, on_message=None): return path\n"
    assert "path" not in shorten(program({"m": text}), ()).texts()["m"]
    assert "start(path, on_message=None)" in shorten(program({"m": text}), ("m",)).texts()["m"]
    computed = f"{text}def call(values): return start(**values)\n"
    assert "start(path, on_message=None)" in shorten(program({"m": computed}), ()).texts()["m"]
    said = f"{text}def call(): return start('x', on_message=print)\n"
    assert "def start(a, on_message=None)" in shorten(program({"m": said}), ()).texts()["m"]
