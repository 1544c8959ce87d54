"""Messages that were published to NATS and are not answered."""

import asyncio
import time
from collections.abc import Callable, Iterator

from nats.errors import Error

from uplink.foreign.nats.client import BoundedClient
from uplink.foreign.transport import Answer, Answered, Verdict

FLUSH_AFTER = 64  # messages of core NATS
PENDING_LOOK_S = 0.001


class Sent:
    """A message that is not answered, or was answered already: it is answered once.

    ``receiver`` is the one that it is for, "" for all.
    """

    __slots__ = ("_answered", "receiver", "sent_s", "subject")

    def __init__(self, subject: str, receiver: str, answered: Answered) -> None:
        self.subject = subject
        self.receiver = receiver
        self.sent_s = time.monotonic()
        self._answered: Answered | None = answered

    def answer(self, answer: Answer) -> None:
        """Hands the answer on, if it is the first one."""
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(answer)


class SentByCore:
    """The messages of core NATS, which has no acknowledgement: a PONG stands for it, that comes behind them.

    Args:
        client: the connection.
        deadline_s: how long a PONG may take, in seconds.
        end: ends the connection, and gets the reason.
    """

    def __init__(self, client: BoundedClient, deadline_s: int, end: Callable[[str], None]) -> None:
        self._client = client
        self._deadline_s = deadline_s
        self._end = end
        self._unflushed: list[Sent] = []
        self._flushing: dict[asyncio.Task[None], list[Sent]] = {}

    def __iter__(self) -> Iterator[Sent]:
        for messages in self._flushing.values():
            yield from messages
        yield from self._unflushed

    def add(self, sent: Sent) -> None:
        """A message is about to be published."""
        self._unflushed.append(sent)

    @property
    def is_full(self) -> bool:
        """Whether so many were published that a PING is to follow them."""
        return len(self._unflushed) >= FLUSH_AFTER

    def flush(self) -> None:
        """Asks for a PONG behind what was published."""
        messages, self._unflushed = self._unflushed, []
        if messages:
            task = asyncio.get_running_loop().create_task(self._flush(messages))
            self._flushing[task] = messages
            task.add_done_callback(self._flushing.pop)

    async def settle(self) -> None:
        """Waits for the PONGs that were asked for."""
        if self._flushing:
            await asyncio.wait([*self._flushing])

    def stop(self) -> None:
        """The connection ends: nothing more is answered."""
        for task in self._flushing:
            task.cancel()

    async def _flush(self, messages: list[Sent]) -> None:
        try:
            while self._client.pending_data_size:  # the library writes a PING at once, also before what waits there
                await asyncio.sleep(PENDING_LOOK_S)
            await self._client.flush(self._deadline_s)
        except (Error, OSError, TimeoutError) as error:
            self._end(f"no PONG came for messages: {error or type(error).__name__}")
            return
        for sent in messages:
            sent.answer(Answer(Verdict.TAKEN))
