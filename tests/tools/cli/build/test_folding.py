"""Constants are folded, and a program means what it meant."""

# ruff: noqa: E501 - each program stands in one line

from pathlib import Path

import pytest

from tests.tools.cli.build.programs import program, run
from tools.cli.build import BuildError, fold

SOURCES = {
    "wire": "",
    "wire.kinds": "ONE, TWO = range(1, 3)\n_SECRET = 1 << 4\nTABLE = {ONE: _SECRET}\ndef name(): return ONE\n",
    "wire.use": (
        "from wire import kinds as k\nfrom wire.kinds import TABLE, TWO\nLIMIT = TWO + 5\n"
        "def say(): return f'at {LIMIT} of {k.ONE}', TABLE[k.ONE]\n"
    ),
}


def folded(sources: dict[str, str]) -> dict[str, str]:
    return fold(program(sources)).texts()


def test_folded_constants_are_gone_and_what_is_none_stays() -> None:
    texts = folded(SOURCES)
    assert texts["wire.kinds"].splitlines() == ["TABLE = {1: 16}", "", "def name():", "    return 1"]
    assert "from wire.kinds import TABLE\n" in texts["wire.use"]
    assert "LIMIT" not in texts["wire.use"] and "'at 7 of 1'" in texts["wire.use"]


def test_module_that_reads_its_own_names_keeps_them() -> None:
    text = "_A = 1\ndef names(): return [name for name, _ in globals().items()]\n"
    assert "_A = 1" in folded({"m": text})["m"]


def test_constant_that_is_asked_of_a_module_that_took_it_over_stays_there() -> None:
    board = "from chips import LIMIT\n__all__ = ('LIMIT',)\n"
    texts = folded({"chips": "LIMIT = 7\n", "board": board, "use": "def most(board): return board.LIMIT\n"})
    assert "from chips import LIMIT\n" in texts["board"] and "LIMIT = 7" in texts["chips"]


LIMITS = "LIMIT = 7\n"
MEANINGS = {
    "assigned again under a condition": ({"main": "import sys\nA = 1\nif sys:\n    A = 2\ndef run(): return A\n"}, 2),
    "assigned again where an import fails": (
        {"main": "A = 1\ntry:\n    from no_such_module import A\nexcept ImportError:\n    A = 2\ndef run(): return A\n"},
        2,
    ),
    "imported, or else assigned": (
        {"limits": LIMITS, "main": "try:\n    from limits import LIMIT\nexcept ImportError:\n    LIMIT = 2\ndef run(): return LIMIT\n"},
        7,
    ),
    "assigned by a function": ({"main": "A = 1\ndef change():\n    global A\n    A = 2\ndef run():\n    change()\n    return A\n"}, 2),
    "assigned by another module": (
        {"limits": LIMITS, "main": "from other import change\nfrom limits import LIMIT\ndef run():\n    change()\n    import sys\n    return sys.modules['limits'].LIMIT\n",
         "other": "def change():\n    import sys\n    sys.modules['limits'].LIMIT = 2\n"},
        2,
    ),
    "added to": ({"main": "A = 1\nA += 1\ndef run(): return A\n"}, 2),
    "an argument of the same name": ({"main": "A = 1\ndef same(A): return A\ndef run(): return same(2), (lambda A: A)(3)\n"}, (2, 3)),
    "a local name, and a comprehension's": (
        {"limits": LIMITS, "main": "from limits import LIMIT\ndef f():\n    LIMIT = 2\n    return LIMIT\ndef run(): return f(), [LIMIT for LIMIT in (1, 3)], LIMIT\n"},
        (2, [1, 3], 7),
    ),
    "an argument that is called like an imported module": (
        {"p": "", "p.limits": LIMITS, "main": "from p import limits\nclass Own: LIMIT = 3\ndef f(limits): return limits.LIMIT\ndef run(): return f(Own), limits.LIMIT\n"},
        (3, 7),
    ),
    "imported in one function, free in another": (
        {"limits": LIMITS, "main": "LIMIT = [2]\ndef f():\n    from limits import LIMIT\n    return LIMIT\ndef run(): return f(), LIMIT[0]\n"},
        (7, 2),
    ),
    "a class's own name": ({"main": "A = 1\nclass Own:\n    A = 2\n    B = A\n    def f(self): return A\ndef run(): return Own.B, Own().f()\n"}, (2, 1)),
    "read before a class binds it": ({"main": "A = 1\nclass Own:\n    B = A\n    A = 2\ndef run(): return Own.B, Own.A\n"}, (1, 2)),
    "made from a list that changes": ({"main": "items = [1]\nitems.append(2)\nLAST = items[-1]\nT = ([1],)\nT[0][0] = 5\nF = T[0][0]\ndef run(): return LAST, F\n"}, (2, 5)),
    "taken over and imported again": ({"limits": LIMITS, "board": "from limits import LIMIT\n", "main": "from board import LIMIT\ndef run(): return LIMIT\n"}, 7),
    "under another name": ({"limits": LIMITS, "main": "from limits import LIMIT as most\ndef run(): return most\n"}, 7),
    "asked for by a literal text": ({"limits": LIMITS, "main": "import sys\nfrom limits import LIMIT\ndef run(): return LIMIT, getattr(sys.modules['limits'], 'LIMIT')\n"}, (7, 7)),
    "of a module that acts when it is loaded": (
        {"log": "lines = []\n", "limits": "from log import lines\nLIMIT = 7\nlines.append('limits')\n", "main": "from limits import LIMIT\nfrom log import lines\ndef run(): return LIMIT, lines\n"},
        (7, ["limits"]),
    ),
    "of a driver that a computed name loads": (
        {"d": "", "d.adc": "RATE = 5\ndef twice(): return 2 * RATE\n", "main": "def run():\n    name = 'RA' + 'TE'\n    return getattr(__import__('d.' + 'adc', None, None, ('RATE',)), name)\n"},
        5,
    ),
    "a negative number before an operator": ({"main": "LOW = -3\ndef run(): return LOW ** 2, LOW.bit_length(), -LOW\n"}, (9, 2, 3)),
    "nonlocal": ({"main": "A = 1\ndef f():\n    A = 2\n    def g():\n        nonlocal A\n        A = 3\n    g()\n    return A\ndef run(): return f(), A\n"}, (3, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANINGS)
def test_name_means_the_same_after_folding(name: str, tmp_path: Path) -> None:
    sources, said = MEANINGS[name]
    assert run(tmp_path / "as-written", sources) == said
    assert run(tmp_path / "folded", folded(sources)) == said


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("def f(thing, name): return getattr(thing, name)\n", 1, "computed getattr"),
        ("LIMIT = 1\ndef f(thing, name):\n    setattr(thing, name, 2)\n", 3, "computed setattr"),
        ("A = 1\nB = eval('A')\n", 2, "eval"),
        ("LIMIT = 1\ndef f(): globals()['LIMIT'] = 2\n", 2, "may bind names"),
        ("import sys\ndef f(name): setattr(sys.modules['limits'], name, 7)\n", 2, "computed setattr"),
        ("from limits import *\n", 1, "does not show which names"),
        ("import limits\n", 1, "from … import …"),
        ("def load(name):\n    return __import__(name)\n", 2, "literal at its start"),
    ],
)
def test_what_cannot_be_proved_is_refused_with_file_and_line(text: str, line: int, why: str) -> None:
    with pytest.raises(BuildError, match=f"^m.py:{line}: .*{why}"):
        folded({"limits": LIMITS, "m": text})


def test_computed_name_is_asked_of_an_instance_or_a_foreign_module() -> None:
    text = (
        "import termios\n"
        "class Values: pass\n"
        "class Packet:\n"
        "    def values(self, names): return [getattr(self, name) for name in names]\n"
        "def make(name):\n"
        "    values = Values()\n"
        "    setattr(values, name, 1)\n"
        "    return values, getattr(termios, name)\n"
    )
    assert "getattr(termios, name)" in folded({"m": text})["m"]
