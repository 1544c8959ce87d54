"""A broker that keeps sessions as the standard says, in RAM, and can lose them: at the end of a `VirtualPort`.

A QoS 2 message is delivered at its PUBREL, as late as allowed, so that a broker which loses the session has lost it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from wire.codec.packets import Connect, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe
from wire.connection.server import ServerConnection
from wire.reasons import NO_SUBSCRIPTION_EXISTED, NOT_AUTHORIZED, SUCCESS


@dataclass
class BrokerSession:
    """A session: the state that outlives a connection.

    Attributes:
        received: the QoS 2 messages without PUBREL, by packet identifier.
        coming: the QoS 2 messages for the client, by packet identifier; None where PUBREC came.
        filters: the topic filters of its subscriptions.
    """

    received: dict[int, Publish] = field(default_factory=dict)
    coming: dict[int, Publish | None] = field(default_factory=dict)
    filters: list[str] = field(default_factory=list)


@dataclass
class ModelBroker:
    """Serves one client at a time, with any client identifier.

    Attributes:
        arrived: what was delivered to subscribers, in order.
        publishes: all that came, in order.
        takes: whether a PUBLISH is answered.
        completes: whether a PUBREL is answered.
        refuses: the reason code for a PUBLISH, 0 for most.
        ends: whether the connection ends over a PUBLISH, with the answers that are still on the line.
        announces: the properties of the CONNACK.
        remark: the reason string of a PUBACK or PUBREC.
        packets_left: how many more packets are answered; with the last one `cut` is called, and its answer is lost.
        filters_max: the most filters of a SUBSCRIBE; one with more ends the connection.
        grants: the only topic filters that may be subscribed to; None: all.
        subscribes: whether a SUBSCRIBE is answered.
        unsubscribes: whether an UNSUBSCRIBE is answered.
        is_down: whether CONNECTs stay without an answer.
        connects: how many CONNECTs were answered.
        requests: the packet identifiers of SUBSCRIBEs and UNSUBSCRIBEs.
    """

    receive_maximum: int = 65_535
    takes: bool = True
    completes: bool = True
    refuses: Callable[[Publish], int] = lambda _publish: SUCCESS
    ends: Callable[[Publish], bool] = lambda _publish: False
    announces: dict[int, object] = field(default_factory=dict)
    remark: str = ""
    packets_left: int | None = None
    cut: Callable[[], None] = lambda: None
    filters_max: int = 8
    grants: list[str] | None = None
    subscribes: bool = True
    unsubscribes: bool = True
    is_down: bool = False
    connects: int = 0
    requests: list[int] = field(default_factory=list)
    arrived: list[Publish] = field(default_factory=list)
    publishes: list[Publish] = field(default_factory=list)
    sessions: dict[str, BrokerSession] = field(default_factory=dict)
    _present: BrokerSession = field(default_factory=BrokerSession)
    _is_deaf: bool = False

    @property
    def session(self) -> BrokerSession:
        """The session of the client that is connected, or was last."""
        return self._present

    def forget(self) -> None:
        """Drops all sessions, as a restart without persistence does."""
        self.sessions.clear()
        self._present = BrokerSession()

    def answer(self, connection: ServerConnection, event: object) -> None:
        if isinstance(event, Connect):
            self._is_deaf = self.is_down
        if self._is_deaf:
            return
        self._answer(connection, event)
        if self.packets_left is not None:
            self.packets_left -= 1
            if self.packets_left <= 0:
                self.packets_left, self._is_deaf = None, True
                connection.data_to_send()
                self.cut()

    def send(self, connection: ServerConnection, command: Publish) -> None:
        """Sends a QoS 2 message to the client, which has subscribed to its topic."""
        assert command.packet_identifier is not None
        self.session.coming[command.packet_identifier] = command
        _send(connection, command, False)

    def _answer(self, connection: ServerConnection, event: object) -> None:
        session = self.session
        if isinstance(event, Connect):
            self._accept(connection, event)
        elif isinstance(event, Publish):
            self._take(connection, event)
        elif isinstance(event, Pubrel):
            if self.completes:
                message = session.received.pop(event.packet_identifier, None)
                self.arrived += [message] if message is not None else []
                connection.pubcomp(event.packet_identifier)
        elif isinstance(event, Subscribe):
            self._note_request(event.packet_identifier)
            if len(event.filters) > self.filters_max:
                self.cut()
            if len(event.filters) > self.filters_max or not self.subscribes:
                return
            granted = [name for name, _ in event.filters if self.grants is None or name in self.grants]
            session.filters += [name for name in granted if name not in session.filters]
            codes = [options & 3 if name in granted else NOT_AUTHORIZED for name, options in event.filters]
            connection.suback(event.packet_identifier, codes)
        elif isinstance(event, Unsubscribe):
            self._note_request(event.packet_identifier)
            if not self.unsubscribes:
                return
            known = [name in session.filters for name in event.filters]
            session.filters = [name for name in session.filters if name not in event.filters]
            codes = [SUCCESS if is_known else NO_SUBSCRIPTION_EXISTED for is_known in known]
            connection.unsuback(event.packet_identifier, codes)
        elif isinstance(event, Pubrec):
            session.coming[event.packet_identifier] = None
            connection.pubrel(event.packet_identifier)
        elif isinstance(event, Pubcomp):
            session.coming.pop(event.packet_identifier, None)

    def _note_request(self, packet_identifier: int) -> None:
        assert packet_identifier not in self.session.received, "[MQTT-2.2.1-3]"
        self.requests.append(packet_identifier)

    def _accept(self, connection: ServerConnection, connect: Connect) -> None:
        self.connects += 1
        if connect.clean_start:
            self.sessions.pop(connect.client_id, None)
        is_present = connect.client_id in self.sessions
        self._present = self.sessions.setdefault(connect.client_id, BrokerSession())
        connection.accept(is_present, dict(self.announces))
        connection.resume(list(self.session.received))
        for identifier, command in self.session.coming.items():
            if command is None:
                connection.pubrel(identifier)
            else:
                _send(connection, command, True)

    def _take(self, connection: ServerConnection, publish: Publish) -> None:
        self.publishes.append(publish)
        if self.ends(publish):
            self._is_deaf = True
            connection.data_to_send()
            self.cut()
        elif publish.packet_identifier is None:
            self.arrived.append(publish)
        elif self.takes:
            reason_code = self.refuses(publish)
            if publish.qos == 2:
                if reason_code == SUCCESS:
                    self.session.received[publish.packet_identifier] = publish
                connection.pubrec(publish.packet_identifier, reason_code, self.remark)
            else:
                self.arrived += [publish] if reason_code == SUCCESS else []
                connection.puback(publish.packet_identifier, reason_code, self.remark)


def _send(connection: ServerConnection, command: Publish, dup: bool) -> None:
    connection.publish(
        command.topic,
        command.payload,
        qos=2,
        dup=dup,
        properties=dict(command.properties),
        packet_identifier=command.packet_identifier,
    )
