"""Names that the program never looks up become short, and a program means what it meant."""

# ruff: noqa: E501 - each program stands in one line

from pathlib import Path

import pytest

from tests.tools.cli.build.programs import program, run
from tools.cli.build import BuildError, rename

SOURCES = {
    "base": (
        "class Base:\n    _limit_of_all = 7\n    def __init__(self, first): self._first_value = first\n"
        "    def _read_it(self): return self._first_value + self._limit_of_all\n"
        "def _helper_of_base(value): return value + 1\n"
        "def outer_function(value):\n    _helper = value\n    return _helper_of_base(_helper)\n"
    ),
    "other": (
        "from base import Base, outer_function as calls\n"
        "class Inner(Base):\n    def __init__(self): super().__init__(2); self._own_value = 3\n"
        "    def sum(self): return self._read_it() + self._own_value + calls(self._own_value)\n"
        "class Stranger:\n    def __init__(self, of): self._shared_value = of\n"
        "    def same(self, other): return self._shared_value == other._shared_value\n"
        "class Asked:\n    def __init__(self): self._by_its_text = 5\n    def get(self): return getattr(self, '_by_its_text')\n"
    ),
    "main": (
        "def run():\n    from other import Inner, Stranger, Asked\n"
        "    return Inner().sum(), Stranger(1).same(Stranger(1)), Asked().get(), hidden(1)\n"
        "def hidden(value):\n    global _count\n    _count = value\n    return _count\n"
    ),
}


def test_program_with_short_names_does_the_same(tmp_path: Path) -> None:
    renamed = rename(program(SOURCES), ("main",)).texts()
    assert run(tmp_path / "short", renamed) == run(tmp_path / "long", SOURCES) == (16, True, 5, 1)


def test_strangers_share_short_names_and_a_family_does_not() -> None:
    texts = rename(program(SOURCES), ("main",)).texts()
    for name in (
        "_first_value",
        "_limit_of_all",
        "_read_it",
        "_own_value",
        "_shared_value",
        "_helper_of_base",
        "outer_function",
    ):
        assert not any(name in text for text in texts.values()), name
    own = texts["other"].partition("class Stranger")[0]
    assert len(set(_privates(texts["base"].partition("def _h")[0] + own))) >= 4


def test_names_that_stand_in_a_text_and_public_ones_of_an_entry_stay() -> None:
    texts = rename(program(SOURCES), ("main",)).texts()
    assert "self._by_its_text" in texts["other"] and "class Inner(Base)" in texts["other"]
    assert "def hidden(value)" in texts["main"] and "_count" not in texts["main"]


def test_module_that_is_imported_as_a_whole_keeps_its_names(tmp_path: Path) -> None:
    sources = {
        "parts": "",
        "parts.one": "def name_of_part(): return 1\n",
        "main": "from parts import one\ndef run(): return one.name_of_part()\n",
    }
    renamed = rename(program(sources), ("main",)).texts()
    assert "def name_of_part()" in renamed["parts.one"]
    assert run(tmp_path, renamed) == 1


def test_module_that_lists_its_names_keeps_them(tmp_path: Path) -> None:
    sources = {
        "reasons": "NOT_ALLOWED = 0x87\ndef describe(code): return [name for name, value in globals().items() if value == code]\n",
        "main": "def run():\n    from reasons import describe\n    return describe(0x87)\n",
    }
    assert run(tmp_path, rename(program(sources), ("main",)).texts()) == ["NOT_ALLOWED"]


def test_base_class_that_is_no_plain_name_is_refused() -> None:
    sources = {"parts": "", "parts.b": "class Base: pass\n", "a": "from parts import b\nclass One(b.Base): pass\n"}
    with pytest.raises(BuildError, match=r"a\.py:2: b\.Base: a base class needs a plain name"):
        rename(program(sources), ())


def test_function_that_takes_a_short_name_is_not_hidden_by_a_member(tmp_path: Path) -> None:
    sources = {
        "part": "def make_value(): return 4\nclass One:\n    _first = make_value()\n    def get(self): return self._first + make_value()\n",
        "main": "def run():\n    from part import One\n    return One().get()\n",
    }
    renamed = rename(program(sources), ("main",)).texts()
    assert run(tmp_path, renamed) == 8


MEANINGS = {
    "members of objects from outside": (
        {
            "main": "import sys\nclass One:\n    def __init__(self): self._version = 3\n    def get(self): return self._version\n"
            "class Version:\n    def __init__(self): self._major_number = 1\n"
            "def run():\n    import outside\n    return outside.thing._version, outside.make()._major_number, outside.thing._unknown, One().get(), Version()._major_number\n",
        },
        (5, 6, 7, 3, 1),
    ),
    "an override in another module, by way of a third": (
        {
            "base": "class Base:\n    def told(self): return self._tell_it() + self._more\n    def _tell_it(self): return 1\n    _more = 10\n",
            "between": "from base import Base\n",
            "main": "from between import Base\nclass Inner(Base):\n    def __init__(self): self._own_one = 1; self._own_two = 2\n"
            "    def _tell_it(self): return super()._tell_it() + 100\ndef run(): return Inner().told()\n",
        },
        111,
    ),
    "a function that an entry, or a module used as a whole, only hands on": (
        {
            "parts": "",
            "parts.one": "def tell_it(): return 1\ndef tell_more(): return tell_it() + 1\n",
            "parts.two": "from parts.one import tell_it as tells\nfrom parts.one import tell_more\n",
            "third": "from parts.two import tell_more\n",
            "main": "from parts import two\nfrom parts.one import tell_more as public\nfrom third import tell_more\n"
            "def run(): return two.tells(), two.tell_more(), public(), tell_more()\n",
        },
        (1, 2, 2, 2),
    ),
    "names that are global or nonlocal": (
        {
            "part": "counted_here = 1\ndef helper_of_part(): return 2\n",
            "middle": "def changes():\n    global helper_of_part, counted_long\n    from part import helper_of_part\n    counted_long = 4\n"
            "def reads():\n    return helper_of_part() + counted_long\n"
            "def inner():\n    from part import helper_of_part as _x\n    def deep():\n        nonlocal _x\n        return _x()\n    return deep()\n",
            "main": "def run():\n    from middle import changes, reads, inner\n    changes()\n    return reads(), inner()\n",
        },
        (6, 2),
    ),
    "a class in a class, keys of an object, and a name that is there already": (
        {
            "main": "import json\nclass Outer:\n    class _Inner: made = 3\n    def get(self): return self._Inner.made\n"
            "def _a(): return 4\nclass Two:\n    _value_of_a = _a()\n    _other = _a() + 1\n    def sum(self): return self._value_of_a + self._other + _a()\n"
            "def read(text):\n    found = json.loads(text)\n    return found['_value_of_a'], getattr(Two(), '_other')\n"
            "def run(): return Outer().get(), Two().sum(), read('{\"_value_of_a\": 8}')\n",
        },
        (3, 13, (8, 5)),
    ),
}
OUTSIDE = """
class Thing: _version, _unknown, _major_number = 5, 7, 6
thing = Thing()
def make(): return thing
"""


@pytest.mark.parametrize("what", MEANINGS)
def test_program_means_the_same_with(what: str, tmp_path: Path) -> None:
    sources, expected = MEANINGS[what]
    (tmp_path / "short").mkdir()
    (tmp_path / "short/outside.py").write_text(OUTSIDE)
    assert run(tmp_path / "short", rename(program(sources), ("main",)).texts()) == expected


def test_name_that_is_made_of_parts_is_refused() -> None:
    text = "class One:\n    def get(self, name): return getattr(self, '_' + name)\n"
    with pytest.raises(BuildError, match=r"a\.py:2: a name that is made of parts may be that of a member"):
        rename(program({"a": text}), ())


def test_base_class_from_outside_is_refused() -> None:
    with pytest.raises(BuildError, match=r"a\.py:2: IOBase is from outside of this program, and may call any method"):
        program({"a": "from io import IOBase\nclass One(IOBase): pass\n"})


def _privates(text: str) -> list[str]:
    words = "".join(sign if sign.isalnum() or sign == "_" else " " for sign in text).split()
    return [word for word in words if word.startswith("_") and not word.startswith("__")]
