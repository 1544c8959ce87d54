"""The clients of the broker's benchmarks. They count packets in bulk: a client that decoded each packet, as
`tools.lab.testing.client` does, would be slower than the broker, and the benchmark would measure the client.

A generator runs many of them on one poller, in a process of its own: ``Poller.run`` until a time is over.
"""

import select
import socket
import time
from collections.abc import Callable, Sequence

from tools.lab.bench.broker.packets import Publishes, connect, subscribe
from wire.codec.packets import MQTT_3_1_1, Publish

READ_MOST = 256 * 1024
ANSWER_DEADLINE_S = 30.0
SESSION_S = 3600  # QoS 2 needs a session that outlives its connection
PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70


class Refused(Exception):
    """The broker sent a packet that a benchmark's client does not expect."""


class Stream:
    """One TCP connection to a server on the loopback address, with what it has not sent and not handled yet."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._left = b""
        self._unsent = b""

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Sends as much as the socket takes now; `on_writable` sends the rest."""
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._unsent = bytes(data[sent:])

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def on_writable(self) -> None:
        """Sends the rest."""
        unsent, self._unsent = self._unsent, b""
        self.send(unsent)

    def on_readable(self) -> None:
        data = self.socket.recv(READ_MOST)
        if not data:
            raise Refused("the broker closed the connection")
        data = self._left + data
        self._left = data[self.take(data) :]

    def take(self, data: bytes) -> int:
        """Handles whole packets; returns how many bytes they have."""
        raise NotImplementedError


class Client(Stream):
    """One connection to a broker on the loopback address, after its CONNACK."""

    def __init__(self, port: int, client_id: str, level: int = MQTT_3_1_1, expiry_s: int = 0) -> None:
        super().__init__(port)
        self.level = level
        self.socket.sendall(connect(client_id, level, expiry_s))
        self.session_present = self._expect(0x20)[2] == 1

    def subscribe(self, *topic_filters: str, qos: int = 1) -> None:
        self.socket.sendall(subscribe(*topic_filters, qos=qos, level=self.level))
        self._expect(0x90)

    def publish(self, topic: str) -> None:
        """Publishes a message of QoS 1 and waits for its PUBACK."""
        self.socket.sendall(Publish(topic, b"", 1, packet_identifier=1).encode(self.level))
        self._expect(PUBACK)

    def close(self) -> None:
        """Sends a DISCONNECT."""
        self.socket.sendall(b"\xe0\x00")
        super().close()

    def _expect(self, first_byte: int) -> bytes:
        """Reads one short packet and returns it."""
        data = b""
        while len(data) < 2 or len(data) < 2 + data[1]:
            data += self.socket.recv(1 if len(data) < 2 else 2 + data[1] - len(data)) or _closed()
        if data[0] != first_byte or (first_byte == 0x20 and data[3]) or (first_byte == 0x90 and data[-1] > 2):
            raise Refused(f"packet type 0x{first_byte:02x} expected, got {data.hex(' ')}")
        return data


def _closed() -> bytes:
    raise Refused("the broker closed the connection")


class Publisher(Client):
    """Keeps ``window`` messages unacknowledged as long as ``may_send`` allows it."""

    def __init__(self, port: int, client_id: str, publishes: Publishes, qos: int, window: int, level: int) -> None:
        super().__init__(port, client_id, level, SESSION_S if qos == 2 else 0)
        self._publishes = publishes
        self._qos = qos
        self._window = window
        self.sent = 0
        self._received = 0  # at QoS 2: the messages with a PUBREC
        self.acknowledged = 0
        self.may_send: Callable[[], int] = lambda: 1 << 30

    def fill(self) -> None:
        """Sends as many messages as the window has room for."""
        count = min(self._window - (self.sent - self.acknowledged), self.may_send())
        if count > 0:
            self.send_some(count)

    def send_some(self, count: int) -> None:
        self.send(self._publishes.cut(self.sent, count))
        self.sent += count

    def take(self, data: bytes) -> int:
        count = len(data) // 4
        data = data[: count * 4]
        if self._qos == 1:
            self._check(data, PUBACK, self.acknowledged, count)
            self.acknowledged += count
        else:
            self._take_qos_2(data, count)
        return count * 4

    def _take_qos_2(self, data: bytes, count: int) -> None:
        types = data[0::4]
        received = types.count(PUBREC)
        completed = types.count(PUBCOMP)
        if received == count:
            self._release(data, received)
        elif completed == count:
            self._complete(data, completed)
        else:
            words = [data[at : at + 4] for at in range(0, len(data), 4)]
            self._release(b"".join([word for word in words if word[0] == PUBREC]), received)
            self._complete(b"".join([word for word in words if word[0] == PUBCOMP]), completed)

    def _release(self, pubrecs: bytes, count: int) -> None:
        self._check(pubrecs, PUBREC, self._received, count)
        self._received += count
        pubrels = bytearray(pubrecs)
        pubrels[0::4] = bytes((PUBREL,)) * count
        self.send(pubrels)

    def _complete(self, pubcomps: bytes, count: int) -> None:
        self._check(pubcomps, PUBCOMP, self.acknowledged, count)
        self.acknowledged += count

    def _check(self, data: bytes, kind: int, first: int, count: int) -> None:
        if data != self._publishes.answers(kind, first, count):
            raise Refused(
                f"{count} packets of type 0x{kind:02x} from number {first} expected, got {data[:16].hex(' ')}"
            )


class Subscriber(Client):
    """Acknowledges QoS 1 messages as they come, and counts them."""

    received = 0

    def take(self, data: bytes) -> int:
        end = at = 0
        answers: list[bytes] = []
        while at < len(data) and (end := end_of(data, at)) <= len(data):
            count = alike(data, at, end)
            answers.append(pubacks(data, at, end - at, count))
            self.received += count
            at += count * (end - at)
        if answers:
            self.send(b"".join(answers))
        return at


class Counter(Subscriber):
    """Counts QoS 0 messages, which need no acknowledgement."""

    def take(self, data: bytes) -> int:
        end = at = 0
        while at < len(data) and (end := end_of(data, at)) <= len(data):
            count = alike(data, at, end)
            self.received += count
            at += count * (end - at)
        return at


class SubscriberOnce(Subscriber):
    """Answers each packet of QoS 2 messages, and counts the released messages."""

    def take(self, data: bytes) -> int:
        end = at = 0
        answers: list[bytes] = []
        while at < len(data) and (end := end_of(data, at)) <= len(data):
            if data[at] == PUBREL:
                end = at + 4 * _count_pubrels(data, at)
                pubcomps = bytearray(data[at:end])
                pubcomps[0::4] = bytes((PUBCOMP,)) * ((end - at) // 4)
                answers.append(bytes(pubcomps))
                self.received += (end - at) // 4
            else:
                count = alike(data, at, end)
                answers.append(pubacks(data, at, end - at, count, PUBREC))
                end = at + count * (end - at)
            at = end
        if answers:
            self.send(b"".join(answers))
        return at


def _count_pubrels(data: bytes, at: int) -> int:
    types = data[at : at + (len(data) - at) // 4 * 4 : 4]
    return len(types) - len(types.lstrip(bytes((PUBREL,))))


def end_of(data: bytes, at: int) -> int:
    """Returns where the packet at ``at`` ends, which is beyond the data if the packet is not complete."""
    length = shift = 0
    for index in range(at + 1, min(at + 5, len(data))):
        length |= (data[index] & 0x7F) << shift
        if data[index] < 0x80:
            return index + 1 + length
        shift += 7
    return len(data) + 1


def alike(data: bytes, at: int, end: int) -> int:
    """Returns how many packets with the same first bytes and length follow one another, usually all."""
    size = end - at
    head = data[at : at + 4]
    count = (len(data) - at) // size
    whole = at + count * size
    for index in range(4):
        same = data[at + index : whole : size]
        count = min(count, len(same) - len(same.lstrip(head[index : index + 1])))
    return count


def pubacks(data: bytes, at: int, size: int, count: int, kind: int = PUBACK) -> bytes:
    """Returns the PUBACKs or PUBRECs of some PUBLISHes of one length."""
    start = at + 2 if data[at + 1] < 0x80 else at + 3
    if data[at] & 0xF6 != (0x32 if kind == PUBACK else 0x34):
        raise Refused(f"another PUBLISH expected, got {data[at : at + 8].hex(' ')}")
    place = start + 2 + (data[start] << 8 | data[start + 1])
    whole = at + count * size
    encoded = bytearray(bytes((kind, 2, 0, 0)) * count)
    encoded[2::4] = data[place:whole:size]
    encoded[3::4] = data[place + 1 : whole : size]
    return bytes(encoded)


class Poller:
    """Serves clients for a given time."""

    def __init__(self, clients: Sequence[Stream]) -> None:
        self._epoll = select.epoll()
        self._clients = {client.socket.fileno(): client for client in clients}
        for number, client in self._clients.items():
            client.socket.setblocking(False)
            self._epoll.register(number, select.EPOLLIN)

    def run(
        self,
        seconds: float,
        between: Callable[[], None],
        is_done: Callable[[], bool] = lambda: False,
        wait_s: float = 0.05,
    ) -> float:
        """Calls ``between`` after each poll; returns how long it ran, in seconds."""
        started = time.perf_counter()
        while (now := time.perf_counter()) < started + seconds and not is_done():
            for number, events in self._epoll.poll(wait_s):
                client = self._clients[number]
                if events & ~select.EPOLLOUT:
                    client.on_readable()
                if events & select.EPOLLOUT:
                    client.on_writable()
            between()
            for number, client in self._clients.items():
                wanted = select.EPOLLIN | (select.EPOLLOUT if client.has_unsent else 0)
                self._epoll.modify(number, wanted)
        return now - started
