"""A broker that does what a test says, one connection after the other."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wire.codec.packets import Connect, Disconnect, Packet, Pingreq, Puback, Subscribe
from wire.connection.server import ServerConnection
from wire.errors import Closed

DEADLINE_S = 20.0
PINGREQ = b"\xc0\0"


class Hung(Exception):
    """The lander has closed the connection."""


class Visit:
    """One connection of the lander: accepted and subscribed when a script gets it.

    `connect` is its CONNECT, `subscribe` its SUBSCRIBE, and `acknowledged` are the packet identifiers of its PUBACKs,
    and `pings` counts its PINGREQs that come by themselves.
    """

    connect: Connect
    subscribe: Subscribe

    def __init__(self, client: socket.socket, session_present: bool, connack: dict[int, Any] | None = None) -> None:
        self.acknowledged: list[int] = []
        self.pings = 0
        self._client = client
        self._connection = ServerConnection()
        self._subscribed = False
        while True:
            packet = self.receive()
            if isinstance(packet, Connect):
                self.connect = packet
                self._connection.accept(session_present=session_present, properties=connack or {})
                self._send()
            elif isinstance(packet, Subscribe):
                self.subscribe = packet
                self._subscribed = True
                self.answer(packet)
                return

    def answer(self, subscribe: Subscribe) -> None:
        self._connection.suback(subscribe.packet_identifier, [1])
        self._send()

    def publish(self, topic: str, payload: bytes, identifier: int | None, **more: Any) -> None:
        """Sends a message; with `dup` it is one of an earlier connection."""
        self._connection.publish(topic, payload, packet_identifier=identifier, **more)
        self._send()

    def receive(self) -> Packet:
        """Returns the next packet of the lander. Raises Hung when there is none."""
        while True:
            event = self._connection.next_event()
            self._send()
            if event is None:
                data = self._client.recv(65536)
                if not data:
                    raise Hung
                self.pings += data == PINGREQ
                self._connection.receive_data(data, 0)
                if data == PINGREQ:
                    return Pingreq()
                continue
            if isinstance(event, Closed | Disconnect):
                raise Hung
            if isinstance(event, Puback):
                self.acknowledged.append(event.packet_identifier)
            return event

    def receive_until(self, holds: Callable[[Packet], bool]) -> None:
        """Answers each later SUBSCRIBE, until a packet comes for which `holds`."""
        while True:
            packet = self.receive()
            if isinstance(packet, Subscribe):
                self.answer(packet)
            if holds(packet):
                return

    def receive_pubacks(self, count: int) -> None:
        """Returns when ``count`` messages were acknowledged over this connection, and a SUBSCRIBE behind them answered.

        The lander sends the SUBSCRIBE behind messages to which it has given identities.
        """
        self.receive_until(lambda packet: isinstance(packet, Subscribe) and len(self.acknowledged) >= count)

    def disconnect(self, reason_code: int) -> None:
        self._connection.disconnect(reason_code)
        self._send()

    def serve(self) -> None:
        """Answers until the lander ends the connection."""
        try:
            self.receive_until(lambda packet: False)
        except (Hung, ConnectionError):
            return

    def _send(self) -> None:
        self._client.sendall(self._connection.data_to_send())


@contextmanager
def broker(*scripts: Callable[[Visit], None], connack: dict[int, Any] | None = None) -> Iterator[int]:
    """Serves connections on a free loopback port: the first one with the first script, and so on.

    The session is present from the second one on. Each is reset when its script is over.
    """
    failures: list[BaseException] = []

    def run(scripts: Sequence[Callable[[Visit], None]]) -> None:
        try:
            for number, script in enumerate(scripts):
                client, _ = listener.accept()
                client.settimeout(DEADLINE_S)
                with client:
                    script(Visit(client, number > 0, connack))
        except BaseException as error:
            failures.append(error)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_S)
        thread = threading.Thread(target=run, args=(scripts,), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(DEADLINE_S)
    assert not thread.is_alive()
    if failures:
        raise failures[0]
