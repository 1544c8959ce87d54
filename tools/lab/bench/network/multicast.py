"""A multicast group: the sender's rate with many receivers beside one, and what hostile datagrams leave."""

import asyncio
import gc
import random
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from tools.cli.multicast.group_socket import open_group_socket
from tools.lab.bench.broker.client import Counter, Poller, Publisher
from tools.lab.bench.broker.packets import Publishes
from tools.lab.bench.broker.processes import GENERATOR_CORE, BenchUnavailable, gateway, on_core
from tools.lab.bench.network.nodes import made
from tools.lab.bench.network.rates import goal
from tools.lab.figure import Figure
from tools.lab.testing.client import Client
from tools.lab.testing.lines import StreamLine
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Server
from wire.codec.packets import MQTT_5, Publish, Suback
from wire.multicast import DATAGRAM_MAX, MULTICAST_PROPERTY, HandedKey, decode_key
from wire.multicast.receiver import MulticastReceiver
from wire.multicast.sender import MulticastSender
from wire.properties import USER_PROPERTY

RECEIVERS = 50
BAR = 0.9  # of the rate with one receiver
TURN_S = 0.2  # what is compared takes short turns: the machine changes, and sockets hold the datagrams of so long
TOPIC, FILTER, SIZE = "displays/1", "displays/#", 100
OTHER_TOPIC, OTHER_FILTER = "screens/1", "screens/#"  # the group does not send it
WINDOW, AHEAD_MAX = 2000, 4000
FIRST_S, WARM_UP_S, DRAIN_EVERY_S, DRAIN_S, TCP_WARM_UP_S = 10.0, 0.05, 0.01, 0.1, 0.5
LEFT_MAX = 16 * 1024  # bytes: Python's own free lists come and go by so much
SEED = 1
GROUP = """\
[[listener]]
kind = "tcp"
port = {tls_port}
tls.certificate = "{certificate}"
tls.key = "{key}"
[[multicast]]
name = "bench"
address = "239.192.7.9"
port = {port}
topics = ["displays/#"]
interface = "lo"
"""


class _Receiver:
    """A receiver that reads its socket from time to time, as a process of its own would.

    Args:
        handed: the key.
    """

    def __init__(self, handed: HandedKey) -> None:
        self._socket = open_group_socket(handed.address, handed.port, "lo")
        self._receive = MulticastReceiver()
        self._receive.take_key(handed)
        self.datagrams = 0

    @property
    def sent(self) -> int:
        """How many messages have been sent since the key was handed out, as far as it knows."""
        return self._receive.messages + self._receive.lost_messages

    def drain(self, *, is_checked: bool) -> None:
        """Reads all that has come. One receiver checks the datagrams: fifty would need the processors of fifty."""
        with suppress(BlockingIOError):
            while True:
                datagram = self._socket.recv(DATAGRAM_MAX + 1)
                self.datagrams += 1
                if is_checked:
                    self._receive.receive(datagram)

    def close(self) -> None:
        self._socket.close()


class _Sum(NamedTuple):
    """What was measured in turns: messages, seconds, seconds of the gateway's own work, and the least share of the
    datagrams that a receiver got."""

    messages: float = 0.0
    took_s: float = 0.0
    user_s: float = 0.0
    share: float = 1.0

    def plus(self, other: "_Sum") -> "_Sum":
        sums = self.messages + other.messages, self.took_s + other.took_s, self.user_s + other.user_s
        return _Sum(*sums, min(self.share, other.share))

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.took_s

    @property
    def rate_of_work(self) -> float:
        """Messages per second of the gateway's own work."""
        return self.messages / max(self.user_s, 0.01)


def multicast(folder: Path, seconds: float, datagrams: int) -> Iterator[Figure]:
    """Measures the sender's rate with fifty receivers, then sends hostile datagrams to one."""
    one, many, over_tcp = _rates(made(folder), seconds)
    name = f"multicast to {RECEIVERS} receivers"
    rate, other = many.rate_of_work, one.rate_of_work
    yield Figure(
        f"{name}: sent in a second of the sender's work, beside 1",
        "messages/s",
        rate,
        other,
        goal(seconds, BAR * other),
    )
    yield Figure(f"{name}: sent over loopback, beside 1", "messages/s", many.rate, one.rate)
    yield Figure(f"{name}: sent over loopback, beside 50 over TCP", "messages/s", many.rate, over_tcp.rate)
    yield Figure(f"{name}: datagrams that each got, at least", "%", 100 * many.share)
    harm, left = hostile(datagrams)
    yield Figure(f"{datagrams:,} hostile datagrams: accepted, or worth more than a counter", "", harm, None, 0, True)
    yield Figure(f"{datagrams:,} hostile datagrams: memory that they leave", "B", left, None, LEFT_MAX, True)


def _rates(folder: Path, seconds: float) -> tuple[_Sum, _Sum, _Sum]:
    """Returns what was measured with one receiver, with many, and over TCP to as many subscribers."""
    with ExitStack() as stack:
        certificate, key = _certificate(folder)
        tls_port = free_port()
        more = GROUP.format(tls_port=tls_port, certificate=certificate, key=key, port=free_port())
        ours = stack.enter_context(gateway(folder, more=more))
        handed = asyncio.run(_key(certificate, tls_port))
        publisher = Publisher(ours.port, "bench-publisher", Publishes(TOPIC, 1, SIZE, MQTT_5), 1, WINDOW, MQTT_5)
        stack.callback(publisher.close)
        one = many = _Sum()
        for _ in range(max(2, round(seconds / TURN_S))):
            one = one.plus(_way(ours, publisher, handed, 1))
            many = many.plus(_way(ours, publisher, handed, RECEIVERS))
        return one, many, _over_tcp(stack, ours, seconds)


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Makes a certificate that signs itself; returns its file and its key's. Raises BenchUnavailable."""
    certificate, key = folder / "server.pem", folder / "server.key"
    options = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", "req", *options, *named, "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BenchUnavailable(f"openssl makes no certificate (apt install openssl): {error}") from error
    return certificate, key


async def _key(authority: Path, port: int) -> HandedKey:
    context = ssl.create_default_context(cafile=authority)
    client = Client("bench-display", clean_start=True)
    await client.connect_over(StreamLine(*await asyncio.open_connection("127.0.0.1", port, ssl=context)))
    client.protocol.subscribe([(FILTER, 0)], {USER_PROPERTY: [(MULTICAST_PROPERTY, "")]})
    client.flush()
    answer = await client.expect(Suback)
    client.cut()
    return decode_key(dict(answer.properties[USER_PROPERTY])[MULTICAST_PROPERTY])


def _way(broker: Server, publisher: Publisher, handed: HandedKey, count: int) -> _Sum:
    """Measures the sender with ``count`` receivers for a turn.

    All receivers but one read what their sockets hold when the time is over: on a LAN they would have processors of
    their own.
    """
    receivers = [_Receiver(handed) for _ in range(count)]
    published, drained_s = publisher.sent, time.perf_counter()
    sent_before = [0]

    def between() -> None:
        nonlocal drained_s
        publisher.fill()
        if (now_s := time.perf_counter()) - drained_s >= DRAIN_EVERY_S:
            drained_s = now_s
            receivers[0].drain(is_checked=True)

    def is_ahead_by() -> int:
        return publisher.sent - published - (receivers[0].sent - sent_before[0])

    try:
        with on_core(GENERATOR_CORE):
            poller = Poller([publisher])
            publisher.may_send = lambda: WINDOW
            poller.run(FIRST_S, between, lambda: receivers[0].datagrams > 0)
            poller.run(WARM_UP_S, between)
            sent_before[0], published = receivers[0].sent, publisher.sent
            publisher.may_send = lambda: AHEAD_MAX - is_ahead_by()
            user_s = broker.user_s()
            took_s = poller.run(TURN_S, between)
            sent, user_s = receivers[0].sent - sent_before[0], broker.user_s() - user_s
            publisher.may_send = lambda: 0
            poller.run(DRAIN_S, between)
            for receiver in receivers[1:]:
                receiver.drain(is_checked=False)
            shares = [receiver.datagrams / max(1, receivers[0].datagrams) for receiver in receivers]
        return _Sum(sent, took_s, user_s, min(shares))
    finally:
        for receiver in receivers:
            receiver.close()


def _over_tcp(stack: ExitStack, broker: Server, seconds: float) -> _Sum:
    """Measures how many messages as many subscribers over TCP have got, on the average."""
    subscribers = [Counter(broker.port, f"bench-{number}", MQTT_5) for number in range(RECEIVERS)]
    for one in subscribers:
        stack.callback(one.close)
        one.subscribe(OTHER_FILTER, qos=0)
    publisher = Publisher(broker.port, "bench-other", Publishes(OTHER_TOPIC, 1, SIZE, MQTT_5), 1, WINDOW, MQTT_5)
    stack.callback(publisher.close)

    def received() -> float:
        return sum(one.received for one in subscribers) / RECEIVERS

    with on_core(GENERATOR_CORE):
        poller = Poller([publisher, *subscribers])
        publisher.may_send = lambda: int(AHEAD_MAX - publisher.sent + received())
        poller.run(min(TCP_WARM_UP_S, seconds), publisher.fill)
        before = received()
        took_s = poller.run(seconds, publisher.fill)
        return _Sum(received() - before, took_s)


def hostile(count: int) -> tuple[int, int]:
    """Sends hostile datagrams to a receiver; returns how many did more than count, and the bytes that they left.

    Of each kind there are as many: noise, noise behind a right head, cut, a bit changed, replayed, under a key that has
    ended, under the key of another group, of another epoch.
    """
    chance = random.Random(SEED)
    old, key, epoch = (chance.randbytes(size) for size in (32, 32, 8))
    receiver = MulticastReceiver()
    receiver.take_key(HandedKey("bench", "239.192.7.9", 1, 1, old, epoch, 0, 0))
    sender = MulticastSender(epoch, 1, old)
    ended = [_sealed(sender, number) for number in range(100)]
    for one in ended[:50]:
        receiver.receive(one)
    receiver.take_key(HandedKey("bench", "239.192.7.9", 1, 2, key, epoch, 0, 0))
    sender.use_key(2, key)
    seen = [_sealed(sender, number) for number in range(1000)]
    for one in seen:
        receiver.receive(one)
    stranger = MulticastSender(epoch, 2, old)
    stranger.datagrams = sender.datagrams + 1000
    strange = [_sealed(stranger, number) for number in range(100)]
    other = MulticastSender(bytes(8), 2, key)
    others = [_sealed(other, number) for number in range(100)]
    kinds: Sequence[Callable[[], bytes]] = (
        lambda: chance.randbytes(chance.randrange(DATAGRAM_MAX + 100)),
        lambda: seen[-1][:16] + chance.randbytes(chance.randrange(32, 200)),
        lambda: (one := chance.choice(seen))[: chance.randrange(len(one))],
        lambda: _changed(chance, sender_next),
        lambda: chance.choice(seen),
        lambda: chance.choice(ended),
        lambda: chance.choice(strange),
        lambda: chance.choice(others),
    )
    sender_next = _sealed(sender, 0)
    counted = sum(receiver.refused.values())
    state = receiver.datagrams, receiver.messages, receiver.lost_datagrams, receiver.lost_messages
    harm = 0
    for number in range(1000):  # what Python itself keeps after the first calls
        harm += bool(receiver.receive(kinds[number % len(kinds)]()))
    gc.collect()
    before = _bytes_in_use()
    for number in range(count):
        harm += bool(receiver.receive(kinds[number % len(kinds)]()))
    gc.collect()
    left = _bytes_in_use() - before
    harm += sum(receiver.refused.values()) - counted != count + 1000
    harm += (receiver.datagrams, receiver.messages, receiver.lost_datagrams, receiver.lost_messages) != state
    harm += len(receiver.receive(sender_next)) != 1 or receiver.lost_datagrams != state[2]
    return harm, max(0, left)


def _sealed(sender: MulticastSender, number: int) -> bytes:
    sender.add(Publish(TOPIC, b"%d" % number).encode())
    return sender.seal()


def _changed(chance: random.Random, datagram: bytes) -> bytes:
    """Returns a datagram that has not come yet with a bit changed."""
    changed = bytearray(datagram)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _bytes_in_use() -> int:
    """Returns the bytes of Python's allocated blocks, each taken for 64."""
    return 64 * sys.getallocatedblocks()
