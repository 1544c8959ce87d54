"""What comes from NATS: through durable consumers of JetStream, or by core subscriptions."""

import asyncio
import re
import time
import zlib

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as CoreSubscription
from nats.errors import Error
from nats.js.errors import APIError, BadRequestError, NotFoundError

from gateway.routes import Slice
from uplink.foreign.headers import read_identity
from uplink.foreign.names import Names
from uplink.foreign.nats.client import fault_of, readable
from uplink.foreign.nats.jetstream import JetStream
from uplink.foreign.transport import Arrival, Importer, Parcel
from wire.identity import encode_identity

FETCH_MOST, FETCH_S = 128, 2.0
ACK_WAIT_S = 60.0  # then the server sends a message again that is not acknowledged
IN_FLIGHT_MOST = 1024
LOOK_S = 2.0  # between two looks for a stream that is gone
CORE_PENDING, CORE_PENDING_BYTES = 65_536, 32 << 20
NO_SUCH_SUBJECT = 10093  # err_code: the stream has none of the subjects that a consumer filters
UNFIT = re.compile(r"[^A-Za-z0-9_=-]")  # for the name of a consumer


class _WentBackError(Exception):
    """A stream has less than it had."""


class Consumer:
    """A durable consumer of a JetStream stream: what it hands out comes again until it is acknowledged.

    Args:
        client: the connection.
        jetstream: JetStream over it.
        stream: the stream.
        pattern: the subjects.
        name: what the consumer's name begins with; all that use the same name share the messages.
        importer: takes what comes.
        problems: what is wrong, by stream and pattern.
        is_optional: whether another pattern of the same topic filter brings what is below this one: then it is no fault
            if the stream has none of its subjects.
    """

    def __init__(
        self,
        client: Client,
        jetstream: JetStream,
        stream: str,
        pattern: str,
        name: str,
        importer: Importer,
        problems: dict[str, str],
        *,
        is_optional: bool,
    ) -> None:
        self._client = client
        self._jetstream = jetstream
        self._stream = stream
        self._pattern = pattern
        self._name = f"{UNFIT.sub('_', name)}-{zlib.crc32(f'{name} {pattern}'.encode()):08x}"
        self._importer = importer
        self._problems = problems
        self._place = f"{stream} {pattern}"
        self._origin = f"nats.{stream}"
        self._is_optional = is_optional
        self._epoch = 0
        self._acks: list[str] = []
        self._acking: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Takes what comes until the connection ends. A stream that is gone is looked for again and again."""
        while not self._client.is_closed:
            try:
                await self._begin()
                await self._fetch()
            except NotFoundError:
                self._problems[self._place] = f"there is no stream {self._stream!r}, or its consumer is gone"
            except _WentBackError as error:
                self._problems[self._place] = str(error)
            except (Error, APIError, TimeoutError) as error:
                if isinstance(error, BadRequestError) and error.err_code == NO_SUCH_SUBJECT and self._is_optional:
                    self._problems.pop(self._place, None)
                    await asyncio.sleep(LOOK_S)
                    continue
                what = str(error) or type(error).__name__
                self._problems[self._place] = f"nothing comes from the stream {self._stream!r}: {what}"
            await asyncio.sleep(LOOK_S)

    async def _begin(self) -> None:
        """Finds the stream, and makes the consumer if there is none. Raises nats.errors.Error."""
        found = await self._jetstream.stream(self._stream)
        self._epoch = zlib.crc32(found.created.encode())
        known = self._importer.highest_known(self._origin, self._epoch)
        if known > found.last_seq:
            raise _WentBackError(
                f"the stream {self._stream!r} ends at {found.last_seq}, and what has its number {known} is stored"
                " here: it was restored, and what is new in it would be taken for what is known. Make it anew"
            )
        try:
            await self._jetstream.progress(self._stream, self._name)
        except NotFoundError:
            await self._jetstream.make_consumer(self._stream, self._name, self._pattern, ACK_WAIT_S, IN_FLIGHT_MOST)
        self._problems.pop(self._place, None)

    async def _fetch(self) -> None:
        subscription = await self._jetstream.pull(self._stream, self._name)
        try:
            while True:
                await self._importer.wait_for_room()
                try:
                    with readable("what came"):
                        came = await subscription.fetch(FETCH_MOST, FETCH_S)
                except TimeoutError:  # nothing came, or the stream is gone
                    await self._jetstream.progress(self._stream, self._name)
                    continue
                with readable("what came"):
                    arrivals = [self._arrival(one) for one in came]
                self._importer.take(arrivals)
        finally:
            if not self._client.is_closed:
                await subscription.unsubscribe()

    def _arrival(self, came: Msg) -> Arrival:
        headers = dict(came.headers or {})
        seq = came.metadata.sequence.stream
        made = encode_identity(self._origin, self._epoch, seq)
        identity = read_identity(headers.get("Nats-Msg-Id", "")) or made
        place = f"stream {self._stream}, sequence {seq}"
        parcel = Parcel(came.subject, headers, came.data, identity)
        return Arrival(parcel, place, lambda: self._acknowledge(came.reply), fault_of(headers), made)

    def _acknowledge(self, reply: str) -> None:
        self._acks.append(reply)
        if self._acking is None:
            self._acking = asyncio.get_running_loop().create_task(self._send_acks())

    async def _send_acks(self) -> None:
        try:
            while self._acks:
                acks, self._acks = self._acks, []
                for reply in acks:
                    await self._client.publish(reply, b"+ACK")
        except Error:
            pass  # the connection has ended: what is not acknowledged comes again, and is known
        finally:
            self._acking = None


class Subscription:
    """A core subscription: what is published while the route is connected, once, without an acknowledgement.

    Args:
        client: the connection.
        pattern: the subjects.
        queue_group: the group with which it shares them, "" for none.
        names: says which subjects are the system's own.
        importer: takes what comes.
    """

    def __init__(self, client: Client, pattern: str, queue_group: str, names: Names, importer: Importer) -> None:
        self._client = client
        self._pattern = pattern
        self._queue_group = queue_group
        self._names = names
        self._importer = importer

    async def run(self) -> None:
        """Takes what comes until the connection ends."""
        try:
            subscription: CoreSubscription = await self._client.subscribe(
                self._pattern,
                self._queue_group,
                pending_msgs_limit=CORE_PENDING,
                pending_bytes_limit=CORE_PENDING_BYTES,
            )
        except Error:  # the connection has ended, which the route learns otherwise
            return
        slice_ = Slice()
        async for came in subscription.messages:
            if slice_.is_over:
                await slice_.give_way()
            await self._importer.wait_for_room()
            if not self._names.is_reserved(came.subject):
                headers = dict(came.headers or {})
                identity = read_identity(headers.get("Nats-Msg-Id", ""))
                parcel = Parcel(came.subject, headers, came.data, identity)
                place = f"subject {came.subject}, at {time.time_ns()}"
                self._importer.take([Arrival(parcel, place, _nothing, fault_of(headers))])


def _nothing() -> None:
    """Core NATS has no acknowledgement."""
