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
import secrets
import time

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error, NoServersError, SlowConsumerError
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from host.release import DISTRIBUTION
from uplink.foreign.balance import Receivers
from uplink.foreign.config import NATS_PORTS, NatsConfig, parse_address
from uplink.foreign.nats.client import BoundedClient
from uplink.foreign.nats.incoming import Consumer, Subscription
from uplink.foreign.nats.jetstream import JetStream
from uplink.foreign.nats.receivers import StreamReceivers
from uplink.foreign.nats.sent import Sent, SentByCore
from uplink.foreign.transport import (
    UNREADABLE,
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
LOOK_S = 1.0  # between two looks at the oldest message without an answer
TOKEN_BYTES = 16  # of the subject of an answer: no client guesses it
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
        self._receivers: StreamReceivers | None = None
        if config.receivers and config.stream is not None:
            self._receivers = StreamReceivers(config.stream, config.receivers, receivers, self._problems)
        self._client = BoundedClient()
        self._jetstream: JetStream
        self._core: SentByCore | None = None
        self._last_error = ""
        self._inbox = ""
        self._pending: dict[str, Sent] = {}  # without a PubAck, by the token of the answer's subject, the oldest first
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
                    inbox_prefix=config.inbox_prefix,
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
            raise TransportDown(
                f"a credentials file needs the extra `nats`: pip install '{DISTRIBUTION}[nats]'"
            ) from None
        except UNREADABLE as error:
            is_login = config.credentials is not None and isinstance(error, ValueError | KeyError)
            what = "the login cannot be used [credentials]" if is_login else "what the server sends cannot be read"
            raise TransportDown(f"{what}: {error}") from None

    async def _begin(self) -> None:
        """Makes ready what the connection needs. Raises TransportDown, nats.errors.Error."""
        client, loop, config = self._client, asyncio.get_running_loop(), self._config
        self._jetstream = JetStream(client)
        if config.stream is not None:
            await self._find_stream(config.stream)
        if config.delivery_mode in ("best_effort", "ordered"):
            self._core = SentByCore(client, config.retry_interval_s, self._end)
        else:
            self._inbox = client.new_inbox()
            await client.subscribe(f"{self._inbox}.*", cb=self._take_ack, pending_msgs_limit=0, pending_bytes_limit=0)
        self._tasks.append(loop.create_task(self._watch_answers()))
        if self._receivers is not None:
            await self._receivers.listen(client)
            self._tasks.append(loop.create_task(self._receivers.watch(self._jetstream)))

    async def _find_stream(self, stream: str) -> None:
        try:
            await self._jetstream.stream(stream)
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
        sent = Sent(parcel.name, parcel.receiver, answered)
        if self._core is not None:
            await self._send_core(self._core, sent, headers, parcel.payload)
            return
        token = secrets.token_urlsafe(TOKEN_BYTES)  # each reader of the message sees it
        self._pending[token] = sent
        await self._publish(parcel.name, parcel.payload, f"{self._inbox}.{token}", headers)

    async def _send_core(self, core: SentByCore, sent: Sent, headers: dict[str, str], payload: bytes) -> None:
        if self._config.delivery_mode == "ordered":
            await core.settle()
        core.add(sent)
        await self._publish(sent.subject, payload, "", headers)
        if core.is_full:
            core.flush()

    async def _publish(self, subject: str, payload: bytes, reply: str, headers: dict[str, str]) -> None:
        try:
            await self._client.publish(subject, payload, reply, headers)
        except (Error, OSError) as error:
            raise TransportDown(self._why_ended(error)) from None

    async def flush(self) -> None:
        if self._core is not None:
            self._core.flush()

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
        for task in self._tasks:
            task.cancel()
        if self._core is not None:
            self._core.stop()
        self._end("the route ends")
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                await self._client.close()

    async def _take_ack(self, came: Msg) -> None:
        """Takes what JetStream says of a message.

        Any service that subscribes to the subject may answer too: what JetStream did not say is told, and no answer.
        """
        token = came.subject.rpartition(".")[2]
        sent = self._pending.get(token)
        if sent is None:
            return
        if came.headers and came.headers.get("Status") == NO_RESPONDERS:
            del self._pending[token]
            what = f"no stream takes {sent.subject!r}: it is gone, or was never made"
            sent.answer(Answer(Verdict.LATER, what))
            return
        try:
            ack = msgspec.json.decode(came.data, type=_PubAck)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            ack, fault = _PubAck(), f"it cannot be read: {error}"
        else:
            fault = self._fault_of(ack)
        if fault:
            self._problems["answers"] = f"what answers on {sent.subject!r} is not the stream that was to: {fault}"
            return
        del self._pending[token]
        if ack.error is not None:
            verdict = Verdict.NEVER if ack.error.err_code in TOO_LARGE else Verdict.LATER
            sent.answer(Answer(verdict, f"JetStream refuses it: {ack.error.description} ({ack.error.err_code})"))
        elif self._config.delivery_mode == "all" and self._receivers is not None:
            self._receivers.expect(ack.seq, sent)
        else:
            sent.answer(Answer(Verdict.TAKEN))

    def _fault_of(self, ack: _PubAck) -> str:
        """Returns why an answer is none of the stream's, "" if it is one."""
        if not ack.stream:
            return "its acknowledgement names no stream"
        if self._config.stream is not None and ack.stream != self._config.stream:
            return f"its acknowledgement names the stream {ack.stream!r}, expected {self._config.stream!r}"
        if ack.error is None and ack.seq < 1:
            return "its acknowledgement has no sequence number"
        if ack.error is None and self._receivers is not None and self._receivers.has(ack.seq):
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

    async def _note_error(self, error: Exception) -> None:
        """The client library tells of an error; it may go on."""
        self._last_error = str(error) or type(error).__name__
        if found := FOR_PUBLISH.search(self._last_error):
            self._refuse(found[1])
        elif isinstance(error, SlowConsumerError):
            self._problems["pace"] = "messages of a core subscription were lost: they came too fast to be stored"

    def _refuse(self, subject: str) -> None:
        """The server does not let the route publish to a subject: it answers nothing else."""
        for token, sent in [*self._pending.items(), *(("", one) for one in self._core or ())]:
            if sent.subject.lower() == subject.lower():
                self._pending.pop(token, None)
                sent.answer(Answer(Verdict.NEVER, f"the server does not permit to publish to {sent.subject!r}"))

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
