"""What a gateway tells a neighbour that dials it: its interest, whole once, then change by change.

An announcement is one payload, or several that follow one another if it is long::

    payload = kind book serial texts
    kind    = %x00 / %x01          ; the whole interest, or what has changed since the announcement before
            / %x80 / %x81          ; the same, and the next payload goes on with this announcement
    book    = 8 bytes              ; drawn when the gateway starts: serials of different books say nothing
    serial  = 8 bytes              ; big-endian: the number of the last change in the announcement
    texts   = zlib(text *(%x00 text))
    text    = filter               ; in a whole interest
            / ("+" / "-") filter   ; a change: newly wanted, or no longer

A filter never holds U+0000 [MQTT-1.5.4-2]. The filters of a whole interest are in order, and what stands together in
this order has much text in common: so a filter takes some five bytes.

A neighbour that connects again names the book and the serial that it has, and gets what has changed since. Where that
is unknown, it gets the whole interest, and works out itself what has changed.

Source: RFC 1950 for zlib.
"""

import zlib
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

from gateway.network.interest import Change, Interest
from gateway.network.zones import Side
from wire.errors import WireError
from wire.topics import check_topic_filter

Item = TypeVar("Item")

CHANGES_KEPT = 10_000
"""The changes that a neighbour may miss and still get them alone; this many are kept for all neighbours together."""
TEXTS_MAX = 64 * 1024 * 1024
"""The most bytes of filters in an announcement, before compression."""
FILTERS_MAX = 1_000_000
"""The most filters, or changes, in an announcement."""
PIECE_SIZE = 64 * 1024
"""About how many bytes of filters, before compression, a payload has at most: each takes some milliseconds."""
PIECE_MAX = 132 * 1024
"""The most bytes that are unpacked from a payload: it ends with the filter that exceeds PIECE_SIZE."""
STEP = 1_000
"""How many filters a step of `Heard.changes` looks at: some hundred microseconds."""
_WHOLE, _CHANGES, _MORE = 0, 1, 0x80
_HEAD = 17
_NO_BOOK = bytes(8)


class BadAnnouncement(ValueError):
    """A payload is no announcement. The text says why."""


class Mark(NamedTuple):
    """How far a neighbour has heard: the book, and the serial of the last change."""

    book: bytes = _NO_BOOK
    serial: int = 0

    def encode(self) -> str:
        """Returns it as a text of hexadecimal digits, a blank and a number."""
        return f"{self.book.hex()} {self.serial}"


def decode_mark(text: str) -> Mark:
    """Returns the mark that a text says; any other text says that nothing was heard."""
    book, _, serial = text.partition(" ")
    try:
        mark = Mark(bytes.fromhex(book), int(serial))
    except ValueError:
        return Mark()
    return mark if len(mark.book) == len(_NO_BOOK) and 0 <= mark.serial < 1 << 64 else Mark()


class Announcer:
    """The interest of this gateway, as announcements for all neighbours.

    Args:
        interest: what is wanted here.
        book: 8 bytes that no earlier start of this gateway has used.
    """

    def __init__(self, interest: Interest, book: bytes) -> None:
        self._interest = interest
        self._book = book
        self._serial = 0
        self._changes: deque[Change] = deque(maxlen=CHANGES_KEPT)  # the last one has the serial

    def note(self, changes: Iterable[Change]) -> None:
        """The interest has changed."""
        for change in changes:
            self._serial += 1
            self._changes.append(change)

    def mark(self) -> Mark:
        """Returns how far a neighbour has heard that hears all."""
        return Mark(self._book, self._serial)

    def news(self, side: Side, heard: Mark, piece_size: int = PIECE_SIZE) -> Iterator[bytes]:
        """Yields the payloads that announce what a neighbour of a side has not heard; none if there is nothing.

        What changes while they are asked for is not in them: their mark is the one at the beginning.
        """
        mark, behind = self.mark(), self._serial - heard.serial
        if heard.book != self._book or not 0 <= behind <= len(self._changes):
            return _encode(_WHOLE, mark, sorted(self._interest.told_to(side)), piece_size)
        missed = [self._changes[place] for place in range(len(self._changes) - behind, len(self._changes))]
        texts = list(_texts(missed, side))
        return _encode(_CHANGES, mark, texts, piece_size) if texts else iter(())


class Announced(NamedTuple):
    """An announcement whose payloads are all here: the whole interest, or changes, up to a mark."""

    is_whole: bool
    mark: Mark
    texts: list[str]


class Changes(NamedTuple):
    """What an announcement changes: the filters that are newly wanted, and the filters that no longer are.

    ``again`` are filters that the neighbour wanted before and wants still, and that it did not want in between: it
    lacks their retained messages.
    """

    added: list[str]
    removed: list[str]
    again: list[str]


class Heard:
    """The interest of one neighbour, as it has announced it.

    Args:
        filters: the filters that it wanted when it was heard last. The caller changes them as announcements say.
        mark: how far it was heard.

    ``mark`` is how far it was heard. It says that nothing was heard while only a part of an announcement is followed:
    over the next connection the neighbour announces its whole interest.
    """

    def __init__(self, filters: Collection[str] = (), mark: Mark | None = None) -> None:
        self.mark = mark or Mark()
        self._filters = filters
        self._texts: list[str] = []  # of an announcement that goes on
        self._size = 0

    def begin(self) -> None:
        """A new connection begins: what was begun over the last one does not go on."""
        self._texts, self._size = [], 0

    def take(self, payload: bytes) -> Announced | None:
        """Takes in a payload; returns the announcement that ends with it, None while it goes on.

        Raises BadAnnouncement, and changes nothing then.
        """
        kind, mark, texts, size = _decode(payload)
        self._size += size
        self._texts += texts
        if self._size > TEXTS_MAX or len(self._texts) > FILTERS_MAX:
            self.begin()
            raise BadAnnouncement(f"its filters have more than {TEXTS_MAX} bytes, or are more than {FILTERS_MAX}")
        if kind & _MORE:
            return None
        texts = self._texts
        self.begin()
        return Announced(kind == _WHOLE, mark, texts)

    def changes(self, announced: Announced) -> Generator[None, None, Changes]:
        """Finds out what an announcement changes, in steps of some hundred microseconds; changes nothing itself.

        Raises BadAnnouncement.
        """
        if announced.is_whole:
            is_cut_short = announced.mark.book == self.mark.book  # more has changed than the announcer keeps
            return (yield from self._renewed(announced.texts, is_cut_short))
        return (yield from self._changed(announced))

    def _renewed(self, texts: list[str], is_cut_short: bool) -> Generator[None, None, Changes]:
        wanted: dict[str, None] = {}
        added: list[str] = []
        again: list[str] = []
        for some in _steps(texts):
            news = [one for one in dict.fromkeys(some) if one not in wanted]
            wanted.update(dict.fromkeys(news))
            added += [one for one in news if one not in self._filters]
            if is_cut_short:
                again += [one for one in news if one in self._filters]
            yield
        removed: list[str] = []
        for some in _steps(self._filters):
            removed += [one for one in some if one not in wanted]
            yield
        return Changes(added, removed, again)

    def _changed(self, announced: Announced) -> Generator[None, None, Changes]:
        """Returns what changes make of the filters; one that comes and goes again is in none of the lists."""
        if announced.mark.book != self.mark.book:
            raise BadAnnouncement("it has changes of an interest that was never announced")
        wanted: dict[str, bool] = {}
        for some in _steps(announced.texts):
            for text in some:
                topic_filter, is_wanted = text[1:], text[:1] == "+"
                if is_wanted is wanted.get(topic_filter, topic_filter in self._filters):
                    raise BadAnnouncement(f"{text[:100]!r} does not follow from what was announced before")
                wanted[topic_filter] = is_wanted
            yield
        changes = Changes([], [], [])
        for each in _steps(wanted.items()):
            for topic_filter, is_wanted in each:
                if topic_filter not in self._filters:
                    if is_wanted:
                        changes.added.append(topic_filter)
                else:
                    (changes.again if is_wanted else changes.removed).append(topic_filter)
            yield
        return changes


def _steps(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yields the items, a list of STEP after the other."""
    rest = iter(items)
    while some := list(islice(rest, STEP)):
        yield some


def _texts(changes: Iterable[Change], side: Side) -> Iterator[str]:
    for topic_filter, before, now in changes:
        if before.includes(side) != now.includes(side):
            yield f"{'+' if now.includes(side) else '-'}{topic_filter}"


def _check(topic_filter: str) -> None:
    try:
        check_topic_filter(topic_filter)
    except WireError as error:
        raise BadAnnouncement(str(error)) from None
    if topic_filter.startswith("$share/"):
        raise BadAnnouncement(f"{topic_filter[:100]!r}: expected a topic filter without $share")


def _encode(kind: int, mark: Mark, texts: list[str], piece_size: int) -> Iterator[bytes]:
    head = mark.book + mark.serial.to_bytes(8, "big")
    begin = 0
    while True:
        end, size = begin, 0
        while end < len(texts) and size < piece_size:
            size += len(texts[end].encode()) + 1
            end += 1
        more = _MORE if end < len(texts) else 0
        yield bytes([kind | more]) + head + zlib.compress("\0".join(texts[begin:end]).encode(), 9)
        if not more:
            return
        begin = end


def _decode(payload: bytes) -> tuple[int, Mark, list[str], int]:
    """Returns kind, mark and texts of a payload, and how many bytes the texts have."""
    if len(payload) < _HEAD or payload[0] & ~_MORE not in (_WHOLE, _CHANGES):
        raise BadAnnouncement("expected the whole interest (0) or changes (1), a book and a serial")
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(payload[_HEAD:], PIECE_MAX)
        if not unpacker.eof or unpacker.unused_data:
            raise BadAnnouncement(f"expected one whole stream of zlib with at most {PIECE_MAX} bytes")
        text = content.decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise BadAnnouncement(str(error)) from None
    mark = Mark(payload[1:9], int.from_bytes(payload[9:_HEAD], "big"))
    texts = text.split("\0") if text else []
    for one in texts:  # the first empty one ends it
        if payload[0] & ~_MORE == _WHOLE:
            _check(one)
        elif one[:1] in ("+", "-"):
            _check(one[1:])
        else:
            raise BadAnnouncement(f"{one[:100]!r}: expected + or - before a filter")
    return payload[0], mark, texts, len(content)
