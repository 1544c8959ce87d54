"""Clients of NATS for the poller of the broker's benchmarks, which count messages in bulk.

Source: docs.nats.io, "Client Protocol".
"""

from collections.abc import Callable

from tools.lab.bench.broker.client import Refused, Stream

CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
PING, PONG = b"PING\r\n", b"PONG\r\n"


class NatsPublisher(Stream):
    """Publishes payloads of equal length in turn, as long as ``may_send`` allows it. NATS acknowledges nothing."""

    def __init__(self, port: int, subject: str, payloads: list[bytes]) -> None:
        super().__init__(port)
        self.sent = 0
        self.may_send: Callable[[], int] = lambda: 0
        packets = [b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(one), one) for one in payloads]
        self._length, self._count = len(packets[0]), len(packets)
        self._packets = memoryview(b"".join(packets) * 2)
        self.socket.sendall(CONNECT)

    def fill(self) -> None:
        """Sends as many messages as it may."""
        while (count := min(self._count, self.may_send())) > 0 and not self.has_unsent:
            self.send_some(count)

    def send_some(self, count: int) -> None:
        """Sends ``count`` messages, at most as many as there are payloads."""
        start = self.sent % self._count * self._length
        self.send(self._packets[start : start + count * self._length])
        self.sent += count

    def take(self, data: bytes) -> int:
        if b"-ERR" in data:
            raise Refused(data.decode(errors="replace").strip())
        if PING in data:
            self.send(PONG)
        return len(data)


class NatsCounter(Stream):
    """Counts the messages of its only subscription, whose payloads have equal length."""

    def __init__(self, port: int, subject: str, size: int) -> None:
        super().__init__(port)
        self.received = 0
        self._length = len(f"MSG {subject} 1 {size}\r\n") + size + 2
        self.socket.sendall(CONNECT + b"SUB %b 1\r\n" % subject.encode() + PING)
        while not self._left.endswith(PONG):  # behind the INFO
            self._left += self.socket.recv(1)
        self._left = b""

    def take(self, data: bytes) -> int:
        at = 0
        while at < len(data):
            if data.startswith(b"MSG", at):
                count = self._messages_at(data, at)
                if not count:
                    break
                self.received += count
                at += count * self._length
            elif (end := data.find(b"\r\n", at)) >= 0:
                self._answer(data[at:end])
                at = end + 2
            else:
                break
        return at

    def _messages_at(self, data: bytes, at: int) -> int:
        """Returns how many whole messages follow one another."""
        starts = data[at :: self._length]
        count = len(starts) - len(starts.lstrip(b"M"))
        return min(count, (len(data) - at) // self._length)

    def _answer(self, line: bytes) -> None:
        if line == PING.strip():
            self.send(PONG)
        elif line.startswith(b"-ERR"):
            raise Refused(line.decode(errors="replace"))
