"""NATS as a transport: core and JetStream, by its own client library.

A message goes to JetStream with its identity as `Nats-Msg-Id`: within the duplicate window of the stream a repetition
is known there, and acknowledged again. Core NATS has no acknowledgement: a PONG says that the server has read what came
before the PING, and nothing more.

Sources: docs.nats.io, "JetStream wire API" and "Headers"; the server's source for the numbers of its errors.
"""

import asyncio
import contextlib
import logging
import re
import time
from dataclasses import dataclass

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error, NoServersError, SlowConsumerError
from nats.js import JetStreamContext
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from uplink.foreign.balance import Receivers
from uplink.foreign.config import NATS_PORTS, NatsConfig, parse_address
from uplink.foreign.nats_client import BoundedClient
from uplink.foreign.nats_import import Consumer, Subscription
from uplink.foreign.transport import (
    Answer,
    Answered,
    CannotCarry,
    Importer,
    Login,
    NotLetIn,
    Parcel,
    TransportDown,
    Verdict,
)
from uplink.foreign.wildcards import patterns

CONNECT_DEADLINE_S = 10
PING_INTERVAL_S = 15
PENDING_BYTES = 2 << 20  # on the line; beyond it the client waits for the socket
FLUSH_AFTER = 64  # messages of core NATS
PENDING_LOOK_S = 0.001
LOOK_S, LOOK_BUSY_S = 1.0, 0.1  # between two looks at the receivers
HEADER_BYTES = len("NATS/1.0\r\n\r\n")
NO_RESPONDERS = "503"
TOO_LARGE = (10054, 10097)  # err_code: the message, or its headers, exceed what the stream takes
REFUSED_LOGIN = re.compile(
    "authorization violation|(user|account) authentication (expired|revoked)|certificate.verify.failed", re.IGNORECASE
)
FOR_PUBLISH = re.compile(r'violation for publish to "(.+)"', re.IGNORECASE)

logger = logging.getLogger(__name__)


class _Fault(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _PubAck(msgspec.Struct):
    stream: str = ""
    seq: int = 0
    error: _Fault | None = None


@dataclass(slots=True)
class _Sent:
    """A message that is not answered. ``seq`` is its number in the stream, once it is stored there."""

    subject: str
    receiver: str
    answered: Answered
    sent_s: float
    seq: int = 0
    left: set[str] | None = None  # receivers that have not acknowledged it


class Nats:
    """One connection to a NATS server.

    Args:
        config: the route.
        gateway_name: the gateway that the route belongs to.
        login: the password and the TLS context.
        receivers: told how many messages each receiver has not acknowledged.
    """

    def __init__(self, config: NatsConfig, gateway_name: str, login: Login, receivers: Receivers) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.server = ""
        self._problems: dict[str, str] = {}  # by what they concern
        self._config = config
        self._client_name = f"{gateway_name}-{config.name}"
        self._password, self._tls = login
        self._names = config.names
        self._receivers = receivers
        self._is_core = config.delivery_mode in ("best_effort", "ordered")
        self._client = BoundedClient()
        self._jetstream: JetStreamContext
        self._last_error = ""
        self._inbox = ""
        self._count = 0
        self._pending: dict[int, _Sent] = {}  # without a PubAck, the oldest first
        self._stored: dict[int, _Sent] = {}  # that receivers have not acknowledged, by number in the stream
        self._unflushed: list[_Sent] = []
        self._flushing: dict[asyncio.Task[None], list[_Sent]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def problem(self) -> str:
        return "; ".join(dict.fromkeys([*self._problems.values(), *filter(None, [self._client.skipped])]))

    async def connect(self) -> None:
        faults, refusals = [], 0
        for url in self._config.servers:
            address = parse_address(url, NATS_PORTS)
            try:
                await self._connect_to(str(address))
                await self._begin()
                if not self._client.is_closed:
                    self.server = str(address)
                    return
                faults.append(f"{address}: {self._last_error or 'the connection has ended'}")
            except TransportDown as error:
                faults.append(f"{address}: {error}")
            except (OSError, Error, APIError) as error:
                faults.append(f"{address}: {self._last_error or error or type(error).__name__}")
            refusals += bool(REFUSED_LOGIN.search(faults[-1]))
            await self._client.close()  # it is not in use yet, so its end ends nothing
            self._client, self._last_error = BoundedClient(), ""
        raise (NotLetIn if refusals == len(faults) else TransportDown)("; ".join(faults))

    async def _connect_to(self, url: str) -> None:
        config = self._config
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                await self._client.connect(
                    [url],
                    name=self._client_name,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,  # 0 is for ever
                    reconnect_time_wait=0,
                    connect_timeout=CONNECT_DEADLINE_S,
                    ping_interval=PING_INTERVAL_S,
                    pending_size=PENDING_BYTES,
                    no_echo=True,
                    skip_subject_validation=True,  # `Names` has looked at each
                    error_cb=self._note_error,
                    closed_cb=self._note_closed,
                    user=config.user,
                    password=None if self._password is None else self._password.decode(),
                    user_credentials=config.credentials,
                    tls=self._tls,
                )
        except TimeoutError:
            raise TransportDown(f"no answer in {CONNECT_DEADLINE_S} s") from None
        except NoServersError:
            raise TransportDown(f"cannot connect: {self._last_error or 'no answer'}") from None
        except ImportError:
            raise TransportDown("a credentials file needs the extra `nats`: pip install 'holdfast[nats]'") from None
        except (ValueError, KeyError) as error:
            raise TransportDown(f"the login cannot be used [credentials]: {error}") from None

    async def _begin(self) -> None:
        """Makes ready what the connection needs. Raises TransportDown, nats.errors.Error."""
        client, loop = self._client, asyncio.get_running_loop()
        self._jetstream = client.jetstream()
        if self._config.stream is not None:
            await self._find_stream(self._config.stream)
        if not self._is_core:
            self._inbox = client.new_inbox()
            await client.subscribe(f"{self._inbox}.*", cb=self._take_ack, pending_msgs_limit=0, pending_bytes_limit=0)
        self._tasks.append(loop.create_task(self._watch_answers()))
        if self._config.receivers and self._config.stream is not None:
            await self._watch_advisories(self._config.stream)
            self._tasks.append(loop.create_task(self._watch_receivers(self._config.stream)))

    async def _find_stream(self, stream: str) -> None:
        try:
            await self._jetstream.stream_info(stream)
        except NotFoundError:
            raise TransportDown(f"there is no stream {stream!r}") from None
        except ServiceUnavailableError:
            raise TransportDown("JetStream is not enabled there") from None

    async def send(self, parcel: Parcel, answered: Answered) -> None:
        headers = parcel.headers
        if parcel.identity:
            headers["Nats-Msg-Id"] = parcel.identity
        if self._config.stream is not None:
            headers["Nats-Expected-Stream"] = self._config.stream
        size = len(parcel.payload) + HEADER_BYTES + 4 * len(headers)
        size += sum(map(len, headers)) + sum(map(len, headers.values()))  # all ASCII
        if size > self._client.max_payload:
            most = self._client.max_payload
            raise CannotCarry(f"it has {size} bytes with its headers, and the server takes {most} at most")
        sent = _Sent(parcel.name, parcel.receiver, answered, time.monotonic())
        if self._is_core:
            await self._send_core(sent, headers, parcel.payload)
            return
        self._count += 1
        self._pending[self._count] = sent
        await self._publish(parcel.name, parcel.payload, f"{self._inbox}.{self._count}", headers)

    async def _send_core(self, sent: _Sent, headers: dict[str, str], payload: bytes) -> None:
        if self._config.delivery_mode == "ordered":
            await self._settle_flushes()
        self._unflushed.append(sent)
        await self._publish(sent.subject, payload, "", headers)
        if len(self._unflushed) >= FLUSH_AFTER:
            await self.flush()

    async def _publish(self, subject: str, payload: bytes, reply: str, headers: dict[str, str]) -> None:
        try:
            await self._client.publish(subject, payload, reply, headers)
        except (Error, OSError) as error:
            raise TransportDown(self._why_ended(error)) from None

    async def flush(self) -> None:
        batch, self._unflushed = self._unflushed, []
        if batch:
            task = asyncio.get_running_loop().create_task(self._flush(batch))
            self._flushing[task] = batch
            task.add_done_callback(self._flushing.pop)

    async def _flush(self, batch: list[_Sent]) -> None:
        """Sends a PING behind messages, and takes its PONG for their acknowledgement."""
        try:
            while self._client.pending_data_size:  # the library writes a PING at once, also before what waits there
                await asyncio.sleep(PENDING_LOOK_S)
            await self._client.flush(self._config.retry_interval_s)
        except (Error, OSError, TimeoutError) as error:
            self._end(f"no PONG came for messages: {error or type(error).__name__}")
            return
        for sent in batch:
            self._answer(sent, Answer(Verdict.TAKEN))

    async def _settle_flushes(self) -> None:
        if self._flushing:
            await asyncio.wait([*self._flushing])

    async def receive(self, importer: Importer) -> None:
        sources: dict[tuple[str | None, str | None], list[str]] = {}
        for one in self._config.incoming:
            sources.setdefault((one.stream, one.queue_group), []).append(one.topic)
        async with asyncio.TaskGroup() as group:
            for (stream, queue_group), filters in sources.items():
                wanted = patterns(filters, self._config.subscribe_mode, self._names)
                for pattern in wanted:
                    is_optional = f"{pattern}.>" in wanted
                    source = self._source(stream, pattern, queue_group, importer, is_optional=is_optional)
                    group.create_task(source.run())

    def _source(
        self,
        stream: str | None,
        pattern: str,
        queue_group: str | None,
        importer: Importer,
        *,
        is_optional: bool,
    ) -> Consumer | Subscription:
        """Returns what takes the messages of a pattern."""
        if stream is None:
            return Subscription(self._client, pattern, queue_group or "", self._names, importer)
        return Consumer(
            self._client,
            self._jetstream,
            stream,
            pattern,
            queue_group or self._client_name,
            importer,
            self._problems,
            is_optional=is_optional,
        )

    async def close(self) -> None:
        for task in [*self._tasks, *self._flushing]:
            task.cancel()
        self._end("the route ends")
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                await self._client.close()

    def _answer(self, sent: _Sent, answer: Answer) -> None:
        answered, sent.answered = sent.answered, _ignore
        answered(answer)

    async def _take_ack(self, came: Msg) -> None:
        """Takes what JetStream says of a message.

        Any service that subscribes to the subject may answer too: what JetStream did not say is told, and no answer.
        """
        number = int(came.subject.rpartition(".")[2])
        sent = self._pending.get(number)
        if sent is None:
            return
        if came.headers and came.headers.get("Status") == NO_RESPONDERS:
            del self._pending[number]
            what = f"no stream takes {sent.subject!r}: it is gone, or was never made"
            self._answer(sent, Answer(Verdict.LATER, what))
            return
        try:
            ack = msgspec.json.decode(came.data, type=_PubAck)
        except msgspec.DecodeError as error:
            ack, fault = _PubAck(), f"it cannot be read: {error}"
        else:
            fault = self._fault_of(ack)
        if fault:
            self._problems["answers"] = f"what answers on {sent.subject!r} is not the stream that was to: {fault}"
            return
        del self._pending[number]
        if ack.error is not None:
            verdict = Verdict.NEVER if ack.error.err_code in TOO_LARGE else Verdict.LATER
            self._answer(sent, Answer(verdict, f"JetStream refuses it: {ack.error.description} ({ack.error.err_code})"))
        elif self._config.delivery_mode == "all":
            sent.seq = ack.seq
            sent.left = {sent.receiver} if sent.receiver else set(self._config.receivers)
            self._stored[ack.seq] = sent
        else:
            self._answer(sent, Answer(Verdict.TAKEN))

    def _fault_of(self, ack: _PubAck) -> str:
        """Returns why an answer is none of the stream's, "" if it is one."""
        if not ack.stream:
            return "its acknowledgement names no stream"
        if self._config.stream is not None and ack.stream != self._config.stream:
            return f"its acknowledgement names the stream {ack.stream!r}, expected {self._config.stream!r}"
        if ack.error is None and ack.seq < 1:
            return "its acknowledgement has no sequence number"
        if ack.error is None and ack.seq in self._stored:
            return f"its acknowledgement has the sequence number {ack.seq} of another message"
        return ""

    async def _watch_answers(self) -> None:
        """Ends the connection when the server leaves a message without an answer for too long."""
        while True:
            await asyncio.sleep(LOOK_S)
            oldest = next(iter(self._pending.values()), None)
            if oldest is not None and time.monotonic() - oldest.sent_s > self._config.retry_interval_s:
                told = self._problems.get("answers")
                late = f"the server has not acknowledged a message for {self._config.retry_interval_s} s"
                self._end(f"{late}; {told}" if told else late)
                return

    async def _watch_receivers(self, stream: str) -> None:
        """Looks what the receivers have acknowledged."""
        while True:
            for receiver in self._config.receivers:
                try:
                    found = await self._jetstream.consumer_info(stream, receiver)
                except NotFoundError:
                    self._receivers.note_load(receiver, None)
                    self._problems[receiver] = f"there is no receiver {receiver!r}: no such consumer of {stream!r}"
                    continue
                except (Error, OSError, TimeoutError):
                    continue
                self._problems.pop(receiver, None)
                waiting, unacknowledged = found.num_pending or 0, found.num_ack_pending or 0
                self._receivers.note_load(receiver, waiting + unacknowledged)
                up_to = found.ack_floor.stream_seq if found.ack_floor else 0
                if not waiting + unacknowledged:
                    up_to = max(up_to, found.delivered.stream_seq if found.delivered else 0)
                self._note_acknowledged(receiver, up_to)
            await asyncio.sleep(LOOK_BUSY_S if self._stored else LOOK_S)

    def _note_acknowledged(self, receiver: str, seq: int) -> None:
        for one in [one for one in self._stored.values() if one.seq <= seq]:
            assert one.left is not None
            one.left.discard(receiver)
            if not one.left:
                del self._stored[one.seq]
                self._answer(one, Answer(Verdict.TAKEN))

    async def _watch_advisories(self, stream: str) -> None:
        for receiver in self._config.receivers:
            for event in ("MAX_DELIVERIES", "MSG_TERMINATED"):
                subject = f"$JS.EVENT.ADVISORY.CONSUMER.{event}.{stream}.{receiver}"
                await self._client.subscribe(subject, cb=self._take_advisory)

    async def _take_advisory(self, came: Msg) -> None:
        """A receiver has given a message up."""
        with contextlib.suppress(msgspec.DecodeError):
            advisory = msgspec.json.decode(came.data)
            sent = self._stored.pop(advisory.get("stream_seq", 0), None)
            if sent is not None:
                what = f"receiver {advisory.get('consumer')!r} gave it up after {advisory.get('deliveries')} deliveries"
                self._answer(sent, Answer(Verdict.UNDELIVERED, what))

    async def _note_error(self, error: Exception) -> None:
        """The client library tells of an error; it may go on."""
        self._last_error = str(error) or type(error).__name__
        if found := FOR_PUBLISH.search(self._last_error):
            self._refuse(found[1])
        elif isinstance(error, SlowConsumerError):
            self._problems["pace"] = "messages of a core subscription were lost: they came too fast to be stored"

    def _refuse(self, subject: str) -> None:
        """The server does not let the route publish to a subject: it answers nothing else."""
        waiting = [*self._pending.items(), *((0, one) for batch in self._flushing.values() for one in batch)]
        for number, sent in [*waiting, *((0, one) for one in self._unflushed)]:
            if sent.subject.lower() == subject.lower():
                self._pending.pop(number, None)
                self._answer(sent, Answer(Verdict.NEVER, f"the server does not permit to publish to {sent.subject!r}"))

    async def _note_closed(self) -> None:
        if not self.server:
            return  # it was tried, and another server may be
        why = self._client.fault or self._last_error
        self._end(f"the connection has ended: {why}" if why else "the connection has ended")

    def _end(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_result(why)

    def _why_ended(self, error: Exception) -> str:
        return self.ended.result() if self.ended.done() else str(error) or type(error).__name__


def _ignore(_answer: Answer) -> None:
    """It is answered already."""
