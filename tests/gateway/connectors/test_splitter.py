"""Bytes become lines, whatever they are and however they are cut."""

import random

from hypothesis import given
from hypothesis import strategies as st

from gateway.connectors.splitter import LineSplitter

PIECES = st.lists(st.binary(max_size=30).map(lambda data: data.replace(b"x", b"\r\n")), max_size=30)


def begun(separator: bytes = b"\n", longest: int = 64) -> LineSplitter:
    splitter = LineSplitter(separator, longest)
    splitter.begin()
    return splitter


@given(PIECES)
def test_lines_are_the_same_however_the_bytes_are_cut(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    cut, at_once = begun(b"\r\n"), begun(b"\r\n")
    lines = [line for piece in pieces for line in cut.feed(piece)]
    assert lines == at_once.feed(whole) == [one for one in whole.split(b"\r\n")[:-1] if len(one) <= 64]
    assert cut.overlong == at_once.overlong


def test_what_comes_before_the_first_separator_is_no_line() -> None:
    splitter = LineSplitter(b"\n", 64)
    assert splitter.feed(b"9.5\n21") == []
    assert not splitter.is_between
    assert splitter.feed(b".5\n") == [b"21.5"]
    assert splitter.is_between


def test_a_line_that_begins_behind_silence_is_whole() -> None:
    splitter = begun()
    assert splitter.feed(b"21.5\n") == [b"21.5"]


def test_an_endless_line_is_left_out_as_one_and_the_next_line_is_read() -> None:
    splitter = begun()
    for _ in range(1000):
        assert splitter.feed(bytes(random.Random(1).randrange(65, 90) for _ in range(100))) == []
    assert splitter.overlong == 1
    assert splitter.feed(b"\n21.5\n") == [b"21.5"]
    assert splitter.skipped == 100_000


def test_a_line_of_exactly_the_longest_size_is_a_line() -> None:
    splitter = begun(b"\r\n", 16)
    assert splitter.feed(b"x" * 16 + b"\r") == []
    assert splitter.feed(b"\n" + b"y" * 17 + b"\r\n") == [b"x" * 16]
    assert splitter.overlong == 1
