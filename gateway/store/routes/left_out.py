"""What a route leaves out: the messages that it comes past and that its filters and rules do not choose.

A hole in the identities that a route hands on may be a loss. So the route names what it has left out on purpose, seq by
seq, and a reader of its statements takes nothing else for left out [docs/reference/route-numbers.md]. What another
route hands on to the same destination is not left out there.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator

from gateway.loop.pace import Slice
from gateway.message import Message
from gateway.store.consumers.cursor import Cursor
from gateway.store.consumers.log_reader import LogReader
from gateway.store.routes.lane_cursor import LaneCursor
from gateway.store.tables.log_rows import Gap, Part, PublishBatch, is_qos_0

RUNS_KEPT_MOST = 10_000  # some 2 MB; what a route leaves out beyond it is not named, and so counts as missing

Stream = tuple[str, int]
"""An origin and its epoch."""
Run = tuple[int, int, int]
"""The first and the last seq of messages that were left out, and the position of the last one."""


class LeftOut:
    """The messages that one route has left out and that no statement has named yet.

    Args:
        cursor: takes what the route sends, in its live lane if there are two.
        beside: what all routes of the gateway leave out; this one joins it.
        own: origin and epoch of the identities that the store itself gives.
        is_routine: whether messages of a topic alone are no news.

    ``destination`` is where the route sends to. While ``is_on`` is False nothing is noted. ``has_news`` says whether
    there are messages other than those of topics that ``is_routine`` knows. ``count`` is how many runs there are.
    """

    def __init__(
        self,
        cursor: LaneCursor,
        beside: list["LeftOut"],
        own: Stream,
        is_routine: Callable[[str], bool],
    ) -> None:
        self.destination = ""
        self.is_on = False
        self.has_news = False
        self.count = 0
        self._cursor = cursor
        self._lanes: list[LaneCursor] = []
        self.add_lane(cursor)
        self._beside = beside
        beside.append(self)
        self._own = own
        self._is_routine = is_routine
        self._runs: dict[Stream, list[Run]] = {}

    def add_lane(self, cursor: LaneCursor) -> None:
        """The cursor of a further lane takes messages too."""
        cursor.tell_left_out = self.note_by_rule
        self._lanes.append(cursor)

    def remove_lane(self, cursor: LaneCursor) -> None:
        """The cursor of a lane has ended."""
        self._lanes.remove(cursor)

    def close(self) -> None:
        """The route has ended."""
        self._beside.remove(self)

    @property
    def _passed(self) -> int:
        """The position that the route has come past for good. All messages behind one in flight come again after a
        crash, and the filters of then may choose them.
        """
        return min(cursor.saved_position for cursor in self._lanes)

    @property
    def _read(self) -> int:
        """The position up to which the route has looked at all messages."""
        return min(cursor.unread_from for cursor in self._lanes)

    def _between(self, first: int, last: int) -> dict[Stream, list[tuple[int, int]]]:
        """Returns the runs whose positions lie between two."""
        found = {stream: [run for run in runs if first <= run[2] <= last] for stream, runs in self._runs.items()}
        return {stream: _joined(runs) for stream, runs in found.items() if runs}

    def note_stored(self, first: int, part: Part) -> None:
        """A part of the log was stored, or is read again; its first message has this position."""
        if not self.is_on or all(self._is_wanted(one, part) for one in part.topics) or self._comes_from_there(part):
            return
        if isinstance(part, PublishBatch) and not part.bring_identities and len(part.topics) == 1:
            (topic,) = part.topics
            last = part.first_seq + part.count - 1
            self._add((part.gateway, part.epoch), part.first_seq, last, first + part.count - 1, topic)
            return
        unwanted = {topic for topic in part.topics if not self._is_wanted(topic, part)}
        for position, message in enumerate(part.messages(), first):
            if message.topic in unwanted:
                self.note(position, message)

    def note_by_rule(self, left: Iterable[tuple[int, Message]]) -> None:
        """Rules of the route have left out messages."""
        if self.is_on:
            for position, message in left:
                if not any(other.wants(message.topic, message) for other in self._others()):
                    self.note(position, message)

    def note(self, position: int, message: Message) -> None:
        """The route leaves out a message."""
        if message.origin:
            self._add((message.origin, message.epoch), message.seq, message.seq, position, message.topic)

    def wants(self, topic: str, part: Part) -> bool:
        """Whether the route takes a message of a topic."""
        if part.publisher in self._cursor.not_from or (is_qos_0(part) and not self._cursor.takes_qos_0):
            return False
        return self._cursor.takes_new and self._cursor.takes_topic(topic)

    def take(self, most: int) -> dict[Stream, list[tuple[int, int]]]:
        """Returns and forgets what the route has come past: some of the runs of seqs, in order, by origin and epoch."""
        passed, found = self._passed, dict[Stream, list[tuple[int, int]]]()
        for stream, runs in list(self._runs.items()):
            done = [run for run in runs if run[2] <= passed][:most]
            if not done:
                continue
            most -= len(done)
            found[stream] = _joined(done)
            self.count -= len(done)
            if left := [run for run in runs if run not in set(done)]:
                self._runs[stream] = left
            else:
                del self._runs[stream]
        self.has_news = self.has_news and bool(self._runs)
        self._cursor.saves_passing = bool(self._runs)
        return found

    def give_back(self, found: dict[Stream, list[tuple[int, int]]], position: int = 0) -> None:
        """Takes back what ``take`` or ``come_past`` returned; ``ahead``, if the last one has a position up to this."""
        for (origin, epoch), runs in found.items():
            for first, last in runs:
                self._add((origin, epoch), first, last, position)

    def come_past(self) -> dict[Stream, list[tuple[int, int]]]:
        """Returns what the route has come past, and keeps it."""
        return self._between(0, self._passed)

    def ahead(self) -> dict[Stream, list[tuple[int, int]]]:
        """Returns what the route has come past and may come to again, and keeps it."""
        return self._between(self._passed + 1, self._read)

    def forget_ahead(self) -> None:
        """The route takes other messages from now on, also among the waiting ones."""
        read = self._read
        for stream, runs in list(self._runs.items()):
            self._runs[stream] = [run for run in runs if run[2] <= read]
            self.count += len(self._runs[stream]) - len(runs)
            if not self._runs[stream]:
                del self._runs[stream]

    async def look_through(self, log: LogReader[Cursor], after: int, upto: int) -> AsyncGenerator[int]:
        """Notes what was stored between two positions, before the route noted it, and yields the position up to which
        that is done. Raises sqlite3.Error.
        """
        slice_ = Slice()
        while self.is_on and after < upto:
            for row in await log.read_rows(after):
                for position, part in _parts(row.first, row.parts):
                    last = position + part.count - 1
                    if last > after and not isinstance(part, Gap):
                        self.note_stored(position, part)
                        yield last
                    if slice_.is_over:
                        await slice_.give_way()
                after = row.last

    def _comes_from_there(self, part: Part) -> bool:
        """Whether the destination itself has sent messages with their identities. Nothing is left out then, and if they
        are missing there, they are lost there.
        """
        brings = part.bring_identities if isinstance(part, PublishBatch) else (part.origin, part.epoch) != self._own
        return brings and any(part.publisher in one._cursor.not_from for one in (self, *self._others()))

    def _is_wanted(self, topic: str, part: Part) -> bool:
        return self.wants(topic, part) or any(other.wants(topic, part) for other in self._others())

    def _others(self) -> Iterator["LeftOut"]:
        return (one for one in self._beside if one is not self and one.destination == self.destination)

    def _add(self, stream: Stream, first: int, last: int, position: int, topic: str = "") -> None:
        runs = self._runs.setdefault(stream, [])
        if runs and runs[-1][1] == first - 1:
            runs[-1] = (runs[-1][0], last, max(position, runs[-1][2]))
        elif self.count < RUNS_KEPT_MOST:
            runs.append((first, last, position))
            self.count += 1
        elif not runs:
            del self._runs[stream]
        self.has_news = self.has_news or not self._is_routine(topic)
        self._cursor.saves_passing = bool(self._runs)


def _parts(first: int, parts: Iterable[Part | Gap]) -> Iterator[tuple[int, Part | Gap]]:
    for part in parts:
        yield first, part
        first += part.count


def _joined(runs: Iterable[Run]) -> list[tuple[int, int]]:
    """Returns the seqs of runs, which may overlap, as the fewest runs in order."""
    joined: list[tuple[int, int]] = []
    for first, last, _ in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined
