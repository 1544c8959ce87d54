"""How a neighbour hears the interest of a gateway, over lines that end and gateways that start anew."""

import contextlib
import random
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.network.announcements import (
    CHANGES_KEPT,
    FILTERS_MAX,
    PIECE_SIZE,
    STEP,
    TEXTS_MAX,
    Announced,
    Announcer,
    BadAnnouncement,
    Changes,
    Heard,
    Mark,
    decode_mark,
)
from gateway.network.interest import LOCAL, Interest
from gateway.network.zones import Side
from tests.gateway.filters.test_filter_tree import FILTERS
from tests.gateway.network.hearing import Listener, changes_of

HERE: Side = ("link", "here")


class Neighbours:
    """A gateway, and a neighbour that hears it."""

    def __init__(self, book: int = 1) -> None:
        self.interest = Interest()
        self.announcer = Announcer(self.interest, book.to_bytes(8, "big"))
        self.listener = Listener()

    def want(self, topic_filter: str, side: Side = LOCAL) -> None:
        self.announcer.note(self.interest.want(topic_filter, side))

    def want_no_more(self, topic_filter: str, side: Side = LOCAL) -> None:
        self.announcer.note(self.interest.want_no_more(topic_filter, side))

    def tell(self, piece_size: int = PIECE_SIZE) -> int:
        """Tells what is new; returns the bytes of the announcement, 0 without one."""
        payloads = list(self.announcer.news(HERE, self.listener.heard.mark, piece_size))
        before = self.listener.filters.copy()
        for payload in payloads:
            assert self.listener.filters == before
            added, removed, again = self.listener.take(payload)
        if payloads:
            assert not before.keys() & set(added) and set(removed) <= before.keys()
            assert set(again) <= before.keys() - set(removed)
        return sum(map(len, payloads))

    def check(self) -> None:
        assert set(self.listener.filters) == set(self.interest.told_to(HERE))


def test_a_neighbour_hears_what_changes_and_after_a_cut_what_it_has_missed(seed: int) -> None:
    chance = random.Random(seed)
    neighbours = Neighbours()
    wanted: list[tuple[str, Side]] = []
    for _ in range(400):
        for _ in range(chance.randrange(12)):
            if wanted and chance.random() < 0.5:
                neighbours.want_no_more(*wanted.pop(chance.randrange(len(wanted))))
            else:
                levels = [chance.choice(["a", "b", "+"]) for _ in range(chance.randrange(1, 4))]
                side = chance.choice([LOCAL, HERE, ("link", "there")])
                wanted.append(("/".join([*levels, *(["#"] if chance.random() < 0.2 else [])]), side))
                neighbours.want(*wanted[-1])
        if chance.random() < 0.1:  # a new start of the gateway
            neighbours.announcer = Announcer(neighbours.interest, chance.randbytes(8))
        neighbours.tell(chance.choice([1, 20, PIECE_SIZE]))
        neighbours.check()


def test_a_neighbour_that_missed_too_much_hears_the_whole_interest_again() -> None:
    neighbours = Neighbours()
    neighbours.want("kept")
    neighbours.tell()
    for number in range(CHANGES_KEPT + 1):
        neighbours.want(f"a/{number}")
    neighbours.tell()
    neighbours.check()


def test_a_step_through_the_longest_announcement_looks_at_few_filters() -> None:
    """Else a gateway with very many filters would hold the event loop of the one that dials it."""
    filters = {f"a/{number}": None for number in range(5 * STEP)}
    for announced in (
        Announced(True, Mark(), [f"b/{number}" for number in range(5 * STEP)]),
        Announced(False, Mark(), [f"-{topic_filter}" for topic_filter in filters]),
    ):
        steps = sum(1 for _ in Heard(filters).changes(announced))
        assert steps >= 2 * 5


@pytest.mark.parametrize("is_whole", [True, False])
def test_filters_that_were_withdrawn_and_told_again_are_named(is_whole: bool) -> None:
    book = bytes(8)
    heard = Heard({"kept": None, "again": None}, Mark(book, 1))
    texts = ["again", "kept", "new"] if is_whole else ["-again", "+again", "+new"]
    found = changes_of(heard, Announced(is_whole, Mark(book, 4), texts))
    assert found == Changes(["new"], [], ["again", "kept"] if is_whole else ["again"])


def test_a_neighbour_that_has_heard_all_hears_nothing_when_it_connects_again() -> None:
    neighbours = Neighbours()
    for number in range(1000):
        neighbours.want(f"a/{number}")
    assert neighbours.tell() > 0
    assert neighbours.tell() == 0


def test_a_hundred_thousand_filters_take_at_most_six_bytes_each(seed: int) -> None:
    chance = random.Random(seed)
    neighbours = Neighbours()
    for _ in range(100_000):
        place = f"plant-{chance.randrange(20):02}/line-{chance.randrange(100):02}"
        neighbours.want(f"{place}/machine-{chance.randrange(10_000):04}/temperature"[:37])
    assert neighbours.tell() <= 6 * 100_000


@given(st.lists(FILTERS, unique=True, max_size=10), st.binary(max_size=40), st.integers(0, 60), st.integers(0, 255))
def test_a_corrupt_announcement_is_refused_and_changes_nothing(
    filters: list[str], more: bytes, place: int, value: int
) -> None:
    neighbours = Neighbours()
    for topic_filter in filters:
        neighbours.want(topic_filter)
    (payload,) = neighbours.announcer.news(HERE, Mark())
    corrupt = payload[: place % len(payload)] + bytes([value]) + payload[place % len(payload) + 1 :] + more
    heard = Heard()
    with contextlib.suppress(BadAnnouncement):
        heard.take(corrupt)
    heard.begin()
    announced = heard.take(payload)
    assert announced is not None and announced.texts == sorted(neighbours.interest.told_to(HERE))


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"", "expected the whole interest"),
        (b"\x02" + bytes(30), "expected the whole interest"),
        (bytes(17) + b"no zlib", "incorrect header check"),
        (bytes(17) + b"\x78\xda\x03\x00\x00\x00\x00\x01rest", "expected one whole stream"),
    ],
)
def test_what_is_no_announcement_is_refused_in_words(payload: bytes, text: str) -> None:
    with pytest.raises(BadAnnouncement, match=text):
        Heard().take(payload)


def test_an_announcement_that_goes_on_without_end_is_refused() -> None:
    heard = Heard()
    for texts in (b"a" * 60_000, b"a\0" * 60_000 + b"a"):
        piece = b"\x80" + bytes(16) + zlib.compress(texts)
        for _ in range(min(TEXTS_MAX // len(texts), FILTERS_MAX // (texts.count(0) + 1))):
            heard.take(piece)
        with pytest.raises(BadAnnouncement, match="more than"):
            heard.take(piece)


@pytest.mark.parametrize("texts", [bytes(22_800_000), b"a" + bytes(200_000), b"+" * 64 * 1024 * 1024])
def test_a_bomb_of_filters_is_refused_before_it_is_unpacked(texts: bytes) -> None:
    """Some kilobytes would become millions of texts."""
    for kind in (b"\x00", b"\x01"):
        payload = kind + bytes(16) + zlib.compress(texts, 9)
        tracemalloc.start()
        try:
            with pytest.raises(BadAnnouncement):
                Heard().take(payload)
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()


def test_a_piece_of_an_earlier_connection_does_not_go_on_over_the_next_one() -> None:
    neighbours = Neighbours()
    for number in range(10):
        neighbours.want(f"a/{number}")
    first, *_ = neighbours.announcer.news(HERE, Mark(), piece_size=1)
    neighbours.listener.take(first)
    neighbours.listener.heard.begin()
    neighbours.tell(piece_size=1)
    neighbours.check()


@given(st.binary(min_size=8, max_size=8), st.integers(0, 2**64 - 1))
def test_a_mark_is_read_as_it_was_written(book: bytes, serial: int) -> None:
    mark = Mark(book, serial)
    assert decode_mark(mark.encode()) == mark


@pytest.mark.parametrize("text", ["", "zz 1", "00 1", f"{'00' * 8} -1", f"{'00' * 8} {1 << 64}", f"{'00' * 8}"])
def test_a_text_that_is_no_mark_says_that_nothing_was_heard(text: str) -> None:
    assert decode_mark(text) == Mark()


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = bytes(17) + zlib.compress(b"a" * (80 * 1024 * 1024), 9)
    with pytest.raises(BadAnnouncement, match="at most"):
        Heard().take(bomb)


@pytest.mark.parametrize("text", ["a/#/b", "", "a+", "$share/g/a"])
def test_filters_that_mqtt_does_not_allow_are_refused(text: str) -> None:
    with pytest.raises(BadAnnouncement):
        Heard().take(bytes(17) + zlib.compress(f"a\0{text}".encode()))
