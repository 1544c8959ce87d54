"""A broker whose answers a test chooses. It has real sockets and the real protocol, and stores nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from wire.codec import MQTT_5
from wire.codec.packets import Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe
from wire.connection.server import ServerConnection
from wire.errors import Closed
from wire.properties import MAXIMUM_PACKET_SIZE, MAXIMUM_QOS, RETAIN_AVAILABLE, USER_PROPERTY
from wire.reasons import NO_SUBSCRIPTION_EXISTED, SUCCESS
from wire.time_offer import TIME_PROPERTY, encode_time

MARKS = "holdfast/session/"
ACCEPTING_TURNS = 5  # of the loop, at most, from a connection that is accepted to its `serve`


def silent(_publish: Publish) -> None:
    """A script that answers no PUBLISH."""


def is_about_marks(event: object) -> bool:
    """Whether a packet is a request about the marks of a route's session."""
    if isinstance(event, Unsubscribe):
        return event.filters[0].startswith(MARKS)
    return isinstance(event, Subscribe) and event.filters[0][0].startswith(MARKS)


@dataclass
class ScriptedBroker:
    """Remembers what clients published.

    Attributes:
        session_present: what the next CONNACK says, unless the client starts clean.
        receive_maximum: how many unacknowledged QoS 1 messages a client may have on the way.
        puback: the reason code for a PUBLISH of QoS 1 or 2, or None to stay silent.
        pubcomp: whether a PUBREL is answered.
        maximum_qos, maximum_packet_size, retain_available: what the CONNACK announces, or None.
        early_pubrecs: packet identifiers whose PUBRECs follow the next CONNACK at once.
        hangs_up: whether a connection is closed at once after its CONNACK.
        hangs_up_over: the reason code of the DISCONNECT with which it answers a PUBLISH and closes, 0 to close without
            one, or None to go on.
        commands: the messages that a client gets when it subscribes.
        queued: the messages that follow the CONNACK at once, if the session is present.
        grant: the reason code of a SUBACK for a topic filter.
        silent_marks: how many requests about a route's marks it carries out and closes the connection over, without an
            answer.
        releases: whether a PUBREC is answered.
        mqtt_5_refusal, mqtt_3_1_1_refusal: the bytes with which it answers a CONNECT of this version before it closes;
            None: it speaks this version.
        time_ms: the time (ms since 1970) that CONNACKs offer, or None.
        port: where it listens.
        connects: the CONNECT packets, in order.
        publishes: for each connection the PUBLISH packets, in order.
        pubrels: for each connection the packet identifiers of the PUBRELs, in order.
        pubacks: the packet identifiers of the QoS 1 commands that the client has acknowledged, in order.
        pubrecs: the packet identifiers of the QoS 2 commands that the client has confirmed, in order.
        codes: the reason codes of both, in order.
        pubcomps: the packet identifiers that it has seen released, in order.
        disconnects: the DISCONNECT packets, in order.
        refused: how often it has refused a CONNECT in this way.
        subscribes: the SUBSCRIBE and UNSUBSCRIBE packets, in order, but for a route's marks of its session.
    """

    session_present: bool = False
    receive_maximum: int = 65535
    puback: Callable[[Publish], int | None] = lambda _publish: 0
    pubcomp: bool = True
    maximum_qos: int | None = None
    maximum_packet_size: int | None = None
    retain_available: bool | None = None
    early_pubrecs: list[int] = field(default_factory=list)
    hangs_up: bool = False
    hangs_up_over: Callable[[Publish], int | None] = silent
    commands: list[Publish] = field(default_factory=list)
    queued: list[Publish] = field(default_factory=list)
    grant: Callable[[str], int] = lambda _topic_filter: 2
    silent_marks: int = 0
    releases: bool = True
    mqtt_5_refusal: bytes | None = None
    mqtt_3_1_1_refusal: bytes | None = None
    time_ms: int | None = None
    port: int = 0
    connects: list[Connect] = field(default_factory=list)
    publishes: list[list[Publish]] = field(default_factory=list)
    pubrels: list[list[int]] = field(default_factory=list)
    pubacks: list[int] = field(default_factory=list)
    pubrecs: list[int] = field(default_factory=list)
    pubcomps: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    disconnects: list[Disconnect] = field(default_factory=list)
    refused: int = 0
    subscribes: list[Subscribe | Unsubscribe] = field(default_factory=list)
    _received: list[int] = field(default_factory=list)
    _marks: set[str] = field(default_factory=set)  # by which a route knows its session again
    _newest: tuple[ServerConnection, asyncio.StreamWriter] | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _all_closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def all_closed(self) -> None:
        """Returns when every connection has ended; all that its client sent is answered by the script of that time."""
        await self._all_closed.wait()

    def replace_session(self) -> None:
        """Another session takes the place of the clients': it has nothing of theirs."""
        self._received.clear()
        self._marks.clear()

    def drop_clients(self) -> None:
        """Closes every connection without a DISCONNECT."""
        for writer in self._writers:
            writer.transport.abort()

    def command(self, *commands: Publish) -> None:
        """Sends these messages to the client that has connected last."""
        assert self._newest is not None
        connection, writer = self._newest
        for command in commands:
            self.send(connection, command)
        writer.write(connection.data_to_send())

    def write(self, data: bytes) -> None:
        """Sends bytes past the protocol core to the client that has connected last."""
        assert self._newest is not None
        self._newest[1].write(data)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = ServerConnection(receive_maximum=self.receive_maximum)
        self._writers.add(writer)
        self._newest = connection, writer
        self._all_closed.clear()
        try:
            while data := await reader.read(65536):
                connection.receive_data(data, 0)
                while (event := connection.next_event()) is not None:
                    if isinstance(event, Closed):
                        return
                    refusal = self.mqtt_5_refusal if connection.protocol_level == MQTT_5 else self.mqtt_3_1_1_refusal
                    if refusal is not None:
                        self.refused += 1
                        writer.write(refusal)
                        return
                    if isinstance(event, Publish) and (code := self.hangs_up_over(event)) is not None:
                        self.publishes[-1].append(event)
                        writer.write(connection.data_to_send() + (Disconnect(code).encode() if code else b""))
                        return
                    self.answer(connection, event)
                    if self.silent_marks and is_about_marks(event):
                        self.silent_marks -= 1
                        return
                writer.write(connection.data_to_send())
                writer.write(b"".join(Pubrec(identifier).encode() for identifier in self.early_pubrecs))
                self.early_pubrecs = []
                if self.hangs_up:
                    return
        except OSError:
            pass
        finally:
            writer.close()
            self._writers.remove(writer)
            if not self._writers:
                self._all_closed.set()

    def answer(self, connection: ServerConnection, event: object) -> None:
        """Returns the script's answer to a packet on this connection."""
        if isinstance(event, Connect):
            self.connects.append(event)
            self.publishes.append([])
            self.pubrels.append([])
            present = self.session_present and not event.clean_start
            connection.accept(present, self._announced())
            if not present:
                self.replace_session()
            connection.resume(self._received)
            for command in self.queued if present else ():
                self.send(connection, command)
        elif isinstance(event, Publish):
            self.publishes[-1].append(event)
            reason_code = self.puback(event)
            if reason_code is not None and event.packet_identifier is not None:
                answer = connection.puback if event.qos == 1 else connection.pubrec
                answer(event.packet_identifier, reason_code)
                self._received += [event.packet_identifier] if event.qos == 2 else []
        elif isinstance(event, Pubrel):
            self.pubrels[-1].append(event.packet_identifier)
            if self.pubcomp:
                connection.pubcomp(event.packet_identifier)
                if event.packet_identifier in self._received:
                    self._received.remove(event.packet_identifier)
        elif isinstance(event, Unsubscribe) and is_about_marks(event):
            connection.unsuback(event.packet_identifier, [self._unmark(one) for one in event.filters])
        elif isinstance(event, Subscribe) and is_about_marks(event):
            self._marks.update(name for name, _ in event.filters)
            connection.suback(event.packet_identifier, [self.grant(name) for name, _ in event.filters])
        elif isinstance(event, Subscribe):
            self.subscribes.append(event)
            connection.suback(event.packet_identifier, [self.grant(name) for name, _ in event.filters])
            for command in self.commands:
                self.send(connection, command)
        elif isinstance(event, Unsubscribe):
            self.subscribes.append(event)
            connection.unsuback(event.packet_identifier, [0] * len(event.filters))
        elif isinstance(event, Puback):
            self.pubacks.append(event.packet_identifier)
            self.codes.append(event.reason_code)
        elif isinstance(event, Disconnect):
            self.disconnects.append(event)
        elif isinstance(event, Pubcomp):
            self.pubcomps.append(event.packet_identifier)
        elif isinstance(event, Pubrec):
            self.pubrecs.append(event.packet_identifier)
            self.codes.append(event.reason_code)
            if self.releases and event.reason_code == 0:
                connection.pubrel(event.packet_identifier)

    def _unmark(self, topic_filter: str) -> int:
        is_there = topic_filter in self._marks
        self._marks.discard(topic_filter)
        return SUCCESS if is_there else NO_SUBSCRIPTION_EXISTED

    def send(self, connection: ServerConnection, command: Publish) -> None:
        """Sends the client a PUBLISH, unchanged."""
        connection.publish(
            command.topic,
            command.payload,
            qos=command.qos,
            retain=command.retain,
            dup=command.dup,
            properties=dict(command.properties) if connection.protocol_level == MQTT_5 else {},
            packet_identifier=command.packet_identifier,
        )

    def _announced(self) -> dict[int, object]:
        announced: dict[int, object] = {}
        if self.time_ms is not None:
            announced[USER_PROPERTY] = [(TIME_PROPERTY, encode_time(self.time_ms))]
        if self.maximum_qos is not None:
            announced[MAXIMUM_QOS] = self.maximum_qos
        if self.maximum_packet_size is not None:
            announced[MAXIMUM_PACKET_SIZE] = self.maximum_packet_size
        if self.retain_available is not None:
            announced[RETAIN_AVAILABLE] = int(self.retain_available)
        return announced


@asynccontextmanager
async def scripted_broker(**script: object) -> AsyncIterator[ScriptedBroker]:
    """Runs a broker on a free loopback port."""
    broker = ScriptedBroker(**script)  # type: ignore[arg-type]
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        broker.drop_clients()
        await asyncio.sleep(0)
