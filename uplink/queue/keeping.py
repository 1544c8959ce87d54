"""A route with ``until = "receipt"`` keeps what its broker has acknowledged until receipts say that it is settled.

::

    log:  … settled │ kept: acknowledged, and not settled │ in flight, waiting …
                  place                              the route's cursors

What the tables have passed over goes again, under its identity, so that they count it once. It goes at QoS 1 and
without a route number: the numbers say what the route has handed on, and it has handed this on before.
"""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from time import monotonic, time

from gateway.delivery import RetainedSearch, Wanted
from gateway.routes import Message, RouteState, Signal
from gateway.store import Kept, LaneCursor, MessageLog, Part
from uplink.config.keeping import KeepSettings
from uplink.config.receipt_key import ReceiptKey
from uplink.queue.passage import Mark, Passage, Witness
from uplink.queue.settled import SettledMessages
from wire.receipt import LANDED_TOPIC, RECEIPT_TOPICS, Receipt, decode_landed, decode_receipt, origin_of_topic

LOOK_S = 1.0
MEASURE_S = 10.0  # between two looks at how much is kept
WITNESS_LOOK = 256  # positions before the last acknowledged one, among which a witness is looked for
ASK_MOST_S = 3600.0  # between two messages that are to show how far the tables are
AGAIN_MOST_S = 24 * 3600.0  # between two times that the same messages are sent again
AGAIN_PART = 4  # of the messages that may be in flight, a fourth goes again at most
PASSES_MOST = 16  # stretches of the log that were sent again, each with a pause of its own

logger = logging.getLogger(__name__)


class Pass:
    """A stretch of the log whose unsettled messages were sent again, up to a position.

    ``times`` is how often, and ``at_s`` when the last time ended.
    """

    def __init__(self, up_to: int) -> None:
        self.up_to = up_to
        self.times = 0
        self.at_s = 0.0

    def take_in(self, former: "Pass") -> None:
        """The messages of the stretch before belong to this one."""
        self.times, self.at_s = max(self.times, former.times), max(self.at_s, former.at_s)


class Keeping:
    """What one route keeps, and what of it goes again.

    Args:
        log: the gateway's store.
        consumer: the name of the route's cursor.
        cursors: returns the cursors of the route's lanes.
        keeps: says whether the route hands on messages of a topic for the tables.
        state: the route's state, which tells operators what is not proved.
        settings: how long messages are kept.
        ask: has the route hand on a message of its own, which shows how far the tables are once it is settled.

    ``is_due`` is set while messages are to go again.
    """

    def __init__(
        self,
        log: MessageLog,
        consumer: str,
        cursors: Callable[[], Sequence[LaneCursor]],
        keeps: Callable[[str, Part], bool],
        state: RouteState,
        settings: KeepSettings,
        ask: Callable[[], None],
    ) -> None:
        self.is_due = Signal()
        self._log = log
        self._cursors = cursors
        self._keeps = keeps
        self._state = state
        self.settings = settings
        self._ask = ask
        self._key = None if settings.receipt_key is None else ReceiptKey(settings.receipt_key)
        self._settled = SettledMessages()
        self._passage = Passage(settings.resend_after_s)
        self._passes: list[Pass] = []
        self._asked = (0.0, 0)  # when a message was asked for, and how often in vain
        self._newest_ack = (0.0, 0)  # when the broker acknowledged most, as of the last look, and up to where
        self._measured_s = 0.0
        self._has_news = True  # since the last walk
        self._is_loaded = False
        self._newest = b""  # the receipt for all that was landed, as the gateway retains it
        self.kept: Kept = log.kept.begin(consumer, self.acknowledged)
        self.kept.claims = self

    @property
    def acknowledged(self) -> int:
        """The position up to which the broker has acknowledged all messages of the route."""
        return min(cursor.position for cursor in self._cursors())

    def hands_on(self, topic: str, part: Part) -> bool:
        """Whether the route hands on messages of a topic. Statements that were made elsewhere count too."""
        return self._keeps(topic, part)

    def settled_up_to(self, origin: str, epoch: int, seq: int) -> int:
        """Returns the last of the numbers from ``seq`` on that are all settled; ``seq - 1`` if the first is not."""
        return self._settled.up_to(origin, epoch, seq)

    def hear(self, topic: str, payload: bytes) -> str:
        """Takes a receipt that has come down; returns why it does not count, "" if it does."""
        try:
            if self._key is not None and (problem := self._key.problem_with(topic, payload)):
                return problem
            if topic == LANDED_TOPIC:
                landed = decode_landed(payload)
                if not (problem := self._settled.note_tables(landed)):
                    self._state.landed_ms = landed.landed_ms
            else:
                origin, receipt = origin_of_topic(topic), decode_receipt(payload)
                problem = self._problem_with(origin, receipt) or self._settled.note(origin, receipt)
        except ValueError as error:
            problem = str(error)
        self._has_news = self._has_news or not problem
        return problem

    def _problem_with(self, origin: str, receipt: Receipt) -> str:
        """Returns why a receipt is not about this gateway: each number that it has given has a position in the log."""
        name, epoch = self._log.routes.own
        for one in receipt.epochs if origin == name else ():
            last = one.runs[-1][1] if one.runs else one.high
            if one.epoch == epoch and last > self._log.head:
                return f"it settles {last} of epoch {epoch:08x}, a number that this gateway has not given yet"
        return ""

    async def run(self) -> None:
        """Looks after what is kept, for ever."""
        while True:
            try:
                await self.look()
            except sqlite3.Error as error:
                logger.warning("route %s: what it keeps cannot be looked at: %s", self._state.name, error)
            await asyncio.sleep(LOOK_S)

    async def _load(self) -> None:
        """Hears the receipts that the gateway retains. Raises sqlite3.Error."""
        search = RetainedSearch(self._log, "")
        async for found in search.find([Wanted(RECEIPT_TOPICS + "#", 1, self._log.head)]):
            topics = [one.topic for one in found.owed]
            while topics:
                read = await self._log.reader.read_retained(topics)
                for topic, one in read.items():
                    if one is not None:
                        self.hear(topic, one[1].payload)
                topics = [topic for topic in topics if topic not in read]

    async def _has_newer(self) -> bool:
        """Whether the gateway retains receipts of another run of the job, for a route that hears none itself.

        The one for all that was landed comes last. Raises sqlite3.Error.
        """
        if self.settings.hears_receipts:
            return False
        found = (await self._log.reader.read_retained([LANDED_TOPIC])).get(LANDED_TOPIC)
        before, self._newest = self._newest, found[1].payload if found else b""
        return self._newest != before

    async def look(self) -> None:
        """Moves on past what is settled, and finds what has to go again. Raises sqlite3.Error."""
        if not self._is_loaded or await self._has_newer():
            await self._load()
            self._is_loaded = True
        now_s = monotonic()
        if now_s >= self._passage.is_due:
            self._passage.note(Mark(now_s, self.acknowledged, self._log.head, await self._witness()))
        if self._has_news:
            self._has_news = False
            if await self.kept.pass_settled(self.acknowledged):
                self._asked = (now_s, 0)
            self._passage.forget(self.kept.position)
            self._passes = [one for one in self._passes if one.up_to > self.kept.position]
        if now_s >= self._measured_s + MEASURE_S:
            self._measured_s = now_s
            await self._keep_within_limits()
        self._find_passed_over(now_s)
        self._ask_for_news(now_s)

    async def passed_over(self) -> AsyncGenerator[tuple[int, Message]]:
        """Yields what is to go again now, with its positions; then nothing is due. Raises sqlite3.Error."""
        self.is_due.clear()
        begin, before = self.kept.position, None
        for one in list(self._passes):
            if self._may_go(one, monotonic()):
                is_settled = True
                async for found in self.kept.unsettled(max(begin, self.kept.position), one.up_to):
                    is_settled = False
                    yield found
                one.times += 1
                one.at_s = monotonic()
                if is_settled and before is not None and one in self._passes:  # nothing of it has to go any more
                    before.up_to = one.up_to
                    self._passes.remove(one)
                    begin = one.up_to
                    continue
            begin, before = one.up_to, one

    def _find_passed_over(self, now_s: float) -> None:
        proved_s = self._passage.proved_at(self._is_settled)
        if proved_s is None:
            return
        up_to = self._passage.acknowledged_at(proved_s - self.settings.resend_after_s)
        known = self._passes[-1].up_to if self._passes else self.kept.position
        if up_to > known:
            self._passes.append(Pass(up_to))
            if len(self._passes) > PASSES_MOST:
                former = self._passes.pop(0)
                self._passes[0].take_in(former)
        if any(self._may_go(one, now_s, proved_s) for one in self._passes):
            self.is_due.set()

    def _may_go(self, one: Pass, now_s: float, proved_s: float | None = None) -> bool:
        """Whether a stretch was not sent again, or so long ago that the tables have passed over it once more."""
        if not one.times:
            return True
        after_s = self.settings.resend_after_s
        pause_s = min(after_s * 2**one.times, AGAIN_MOST_S)
        if proved_s is None:
            proved_s = self._passage.proved_at(self._is_settled)
        return proved_s is not None and now_s >= one.at_s + pause_s and proved_s >= one.at_s + after_s

    def _is_settled(self, witness: Witness) -> bool:
        return self._settled.up_to(witness.origin, witness.epoch, witness.seq) >= witness.seq

    async def _witness(self) -> Witness | None:
        """Returns one of the newest acknowledged messages of the route, None if there is none nearby."""
        up_to = self.acknowledged
        found = await self.kept.last_stretch(max(self.kept.position, up_to - WITNESS_LOOK), up_to)
        return None if found is None else Witness(found.end, found.origin, found.epoch, found.last)

    def _ask_for_news(self, now_s: float) -> None:
        """Messages are kept, and no later one has come that could show that the tables have passed over them all.

        One more message does, if it is that much later than the newest of them.
        """
        if self.acknowledged != self._newest_ack[1]:
            self._newest_ack = (now_s, self.acknowledged)
        at_s, times = self._asked
        if self.kept.position >= self.acknowledged or not self._state.connected:
            self._asked = (now_s, 0)
        elif now_s >= max(at_s, self._newest_ack[0]) + min(self._passage.surely_later_s * 2**times, ASK_MOST_S):
            self._asked = (now_s, times + 1)
            self._ask()

    async def _keep_within_limits(self) -> None:
        """Gives up the oldest of what is kept beyond the limits, and tells the state how much is left."""
        settings, state = self.settings, self._state
        await self.kept.give_up(await self._last_older_than((time() - settings.keep_max_age_s) * 1000))
        oldest = await self._oldest()
        state.unproven_messages = self._log.count_behind(self.kept.position) - self._log.count_behind(self.acknowledged)
        state.unproven_ms = oldest[1].received_ms if oldest else 0
        state.unproven_bytes = await self._log.reader.size_between(self.kept.position, self.acknowledged)
        if settings.keep_max_bytes is not None and state.unproven_bytes > settings.keep_max_bytes:
            over = state.unproven_bytes - settings.keep_max_bytes
            positions = self.acknowledged - self.kept.position
            await self.kept.give_up(self.kept.position + max(1, positions * over // state.unproven_bytes))

    async def _last_older_than(self, unix_ms: float) -> int:
        """Returns the position behind which the first message that is not settled came at this time or later."""
        position = self.kept.position
        async with contextlib.aclosing(self.kept.unsettled(position, self.acknowledged)) as found:
            async for at, message in found:
                if message.received_ms >= unix_ms:
                    break
                position = at
        return position

    async def _oldest(self) -> tuple[int, Message] | None:
        async with contextlib.aclosing(self.kept.unsettled(self.kept.position, self.acknowledged)) as found:
            async for one in found:
                return one
        return None
