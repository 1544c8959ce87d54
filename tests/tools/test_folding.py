"""Constants are folded, and a program does what it did."""

from tools.folding import fold

SOURCES = {
    "wire": "",
    "wire.kinds": "ONE, TWO = range(1, 3)\n_SECRET = 1 << 4\nTABLE = {ONE: _SECRET}\ndef name(): return ONE\n",
    "wire.use": (
        "from wire import kinds as k\nfrom wire.kinds import TABLE, TWO\nLIMIT = TWO + 5\n"
        "def say(): return f'at {LIMIT} of {k.ONE}', TABLE[k.ONE]\n"
    ),
}


def test_folded_constants_are_gone_and_what_is_none_stays() -> None:
    folded = fold(SOURCES, keeps_names=False)
    assert folded["wire.kinds"].splitlines() == ["TABLE = {1: 16}", "", "def name():", "    return 1"]
    assert "from wire.kinds import TABLE\n" in folded["wire.use"]
    assert "LIMIT" not in folded["wire.use"] and "'at 7 of 1'" in folded["wire.use"]


def test_library_keeps_its_public_names() -> None:
    folded = fold(SOURCES, keeps_names=True)
    names: dict[str, object] = {}
    exec(folded["wire.kinds"], names)
    assert (names["ONE"], names["TWO"], names["TABLE"]) == (1, 2, {1: 16})
    assert "_SECRET" not in names


def test_module_that_reads_its_own_names_keeps_them() -> None:
    text = "_A = 1\ndef names(): return [name for name in globals()]\n"
    assert "_A = 1" in fold({"m": text}, keeps_names=False)["m"]


def test_constant_that_is_asked_of_a_module_that_took_it_over_stays_there() -> None:
    board = "from chips import LIMIT\n__all__ = ('LIMIT',)\n"
    sources = {"chips": "LIMIT = 7\n", "board": board, "use": "def most(board): return board.LIMIT\n"}
    folded = fold(sources, keeps_names=False)
    assert "from chips import LIMIT\n" in folded["board"] and "LIMIT = 7" in folded["chips"]
