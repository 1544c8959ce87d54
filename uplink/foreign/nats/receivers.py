"""What the receivers of a route have acknowledged: consumers of the JetStream stream that has the messages."""

import asyncio

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js.errors import NotFoundError

from uplink.foreign.balance import Receivers
from uplink.foreign.nats.client import BoundedClient, Unreadable
from uplink.foreign.nats.jetstream import JetStream
from uplink.foreign.nats.sent import Sent
from uplink.foreign.transport import Answer, Verdict

LOOK_S, LOOK_BUSY_S = 1.0, 0.1  # between two looks at the receivers
GIVEN_UP = ("MAX_DELIVERIES", "MSG_TERMINATED")


class _Advisory(msgspec.Struct):
    """What JetStream tells of a message that a consumer gives up."""

    stream_seq: int = 0
    consumer: str = ""
    deliveries: int = 0


class StreamReceivers:
    """The receivers of one stream, over one connection.

    Args:
        stream: the stream.
        names: the names of the consumers.
        shares: told how many messages each has not acknowledged.
        problems: what is wrong, by what it concerns.
    """

    def __init__(self, stream: str, names: tuple[str, ...], shares: Receivers, problems: dict[str, str]) -> None:
        self._stream = stream
        self._names = names
        self._shares = shares
        self._problems = problems
        self._waiting: dict[int, tuple[Sent, set[str]]] = {}  # by number in the stream, with the receivers left

    def has(self, seq: int) -> bool:
        """Whether the message with a number in the stream is not acknowledged by all of its receivers."""
        return seq in self._waiting

    def expect(self, seq: int, sent: Sent) -> None:
        """The stream has a message; it is answered when its receiver, or each of them, has acknowledged it."""
        self._waiting[seq] = sent, {sent.receiver} if sent.receiver else set(self._names)

    async def listen(self, client: BoundedClient) -> None:
        """Subscribes to what JetStream tells of messages that are given up. Raises nats.errors.Error."""
        for name in self._names:
            for event in GIVEN_UP:
                subject = f"$JS.EVENT.ADVISORY.CONSUMER.{event}.{self._stream}.{name}"
                await client.subscribe(subject, cb=self._take_advisory)

    async def watch(self, jetstream: JetStream) -> None:
        """Looks what the receivers have acknowledged, for ever."""
        while True:
            for name in self._names:
                await self._look_at(name, jetstream)
            await asyncio.sleep(LOOK_BUSY_S if self._waiting else LOOK_S)

    async def _look_at(self, name: str, jetstream: JetStream) -> None:
        try:
            found = await jetstream.progress(self._stream, name)
        except NotFoundError:
            self._shares.note_load(name, None)
            self._problems[name] = f"there is no receiver {name!r}: no such consumer of {self._stream!r}"
        except Unreadable as error:
            self._problems[name] = str(error)
        except (Error, OSError, TimeoutError):
            pass  # it is asked again
        else:
            self._problems.pop(name, None)
            self._shares.note_load(name, found.waiting)
            self._note_acknowledged(name, found.acknowledged_up_to)

    def _note_acknowledged(self, name: str, up_to: int) -> None:
        for seq, (sent, left) in [*self._waiting.items()]:
            if seq <= up_to:
                left.discard(name)
                if not left:
                    del self._waiting[seq]
                    sent.answer(Answer(Verdict.TAKEN))

    async def _take_advisory(self, came: Msg) -> None:
        """A receiver has given a message up. What cannot be read is no advisory of JetStream's."""
        try:
            told = msgspec.json.decode(came.data, type=_Advisory)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._problems["advisories"] = f"what came on {came.subject!r} cannot be read: {error}"
            return
        if found := self._waiting.pop(told.stream_seq, None):
            what = f"receiver {told.consumer!r} gave it up after {told.deliveries} deliveries"
            found[0].answer(Answer(Verdict.UNDELIVERED, what))
