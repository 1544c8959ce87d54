"""UTC from a server on this machine's loopback, sound or not."""

import socket
import struct
from collections.abc import Iterator

import pytest

from device.clock import Clock
from device.sntp import RETRY_SHORTEST_MS, Sntp, read_timestamp
from device.watchdog import NoWatchdog

NOON_MS = 1_780_000_000_000
SERVER_4 = 0x24


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        bound.settimeout(10)
        yield bound


def timestamp(unix_ms: int) -> bytes:
    seconds, ms = divmod(unix_ms, 1000)
    return struct.pack(">II", (seconds + 2_208_988_800) % (1 << 32), -(-(ms << 32) // 1000))


def answer(
    number: bytes,
    first: int = SERVER_4,
    stratum: int = 2,
    delay: int = 0,
    dispersion: int = 0,
    reference: bytes | None = None,
    received: bytes | None = None,
    sent: bytes | None = None,
) -> bytes:
    """An answer of that server at noon; `delay` and `dispersion` in 1/65536 s."""
    head = struct.pack(">BBbbiI4s", first, stratum, 0, -20, delay, dispersion, b"GPS ")
    times = (timestamp(NOON_MS - 64_000), number, timestamp(NOON_MS), timestamp(NOON_MS + 10))
    return head + b"".join(
        found if given is None else given for given, found in zip((reference, None, received, sent), times, strict=True)
    )


Asked = tuple[Sntp, Clock, bytes, tuple[str, int]]


@pytest.fixture
def asked(server: socket.socket) -> Iterator[Asked]:
    """A question: the Sntp that asked it, its number, where the answer goes."""
    clock = Clock(1, "ntp")
    sntp = Sntp("127.0.0.1", clock, NoWatchdog(), server.getsockname()[1])
    sntp.advance(1000)
    question, address = server.recvfrom(100)
    assert len(question) == 48 and question[0] == 0x23 and question[1:40] == bytes(39)
    yield sntp, clock, question[40:], address
    sntp.close()


def test_answer_is_utc_halfway_between_question_and_answer(server: socket.socket, asked: Asked) -> None:
    sntp, clock, number, address = asked
    sntp.advance(sntp.next_timer_ms())  # nothing yet
    server.sendto(answer(number), address)
    sntp.advance(1100)
    assert clock.anchor == (1050, NOON_MS + 5, 50)
    assert sntp.next_timer_ms() == 1100 + 3_600_000


@pytest.mark.parametrize(
    "change",
    [
        {"first": 0xE4},
        {"first": 0x23},
        {"stratum": 0},
        {"stratum": 16},
        {"number": b"another!"},
        {"received": bytes(8)},
        {"sent": bytes(8)},
        {"received": bytes(8), "sent": bytes(8)},
        {"reference": bytes(8)},
        {"reference": timestamp(NOON_MS + 1000)},
        {"dispersion": 16 << 16},
        {"delay": 20 << 16, "dispersion": 6 << 16},
        {"sent": timestamp(NOON_MS - 10)},
        {"sent": timestamp(NOON_MS + 60_000)},
        {"received": timestamp(1_000_000), "sent": timestamp(1_000_010), "reference": timestamp(1)},
    ],
    ids=[
        "not synchronised",
        "no server",
        "kiss of death",
        "no stratum",
        "another's answer",
        "never received",
        "never sent",
        "zeros",
        "never set",
        "set later than now",
        "dispersion of 16 s",
        "distance of 16 s",
        "sent before it came",
        "sent a minute later",
        "1970",
    ],
)
def test_unsound_answer_is_no_answer(change: dict[str, object], server: socket.socket, asked: Asked) -> None:
    sntp, clock, number, address = asked
    server.sendto(answer(**{"number": number, **change}), address)  # type: ignore[arg-type]
    for now_ms in (1020, 3000):
        sntp.advance(now_ms)
    assert clock.anchor is None
    assert sntp.next_timer_ms() == 3000 + RETRY_SHORTEST_MS


def test_silent_server_is_asked_less_and_less_often(asked: Asked) -> None:
    sntp, _, _, _ = asked
    waits = []
    for _ in range(10):
        look_ms = sntp.next_timer_ms()
        sntp.advance(look_ms + 2000)
        waits.append(sntp.next_timer_ms() - look_ms - 2000)
        sntp.advance(sntp.next_timer_ms())
    assert waits == [15_000 * 2**n for n in range(8)] + 2 * [3_600_000]


def test_a_name_that_does_not_resolve_is_asked_again_after_a_pause() -> None:
    sntp = Sntp("nowhere.invalid", Clock(1, "ntp"), NoWatchdog())
    sntp.advance(1000)
    assert sntp.next_timer_ms() == 1000 + RETRY_SHORTEST_MS


def test_seconds_go_on_in_2036() -> None:
    assert read_timestamp(timestamp(2_085_978_495_250)) == 2_085_978_495_250
    assert read_timestamp(timestamp(2_085_978_496_000)) == 2_085_978_496_000


def test_each_address_of_the_servers_name_is_asked_in_turn(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = server.getsockname()[1]
    addresses = [("127.0.0.2", port), ("127.0.0.1", port)]
    found = [(socket.AF_INET, socket.SOCK_DGRAM, 0, "", address) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments: found)
    clock = Clock(1, "ntp")
    sntp = Sntp("time.example", clock, NoWatchdog(), port)
    for now_ms in (1000, 1020, 3100):  # no server answers at the first address
        sntp.advance(now_ms)
    sntp.advance(sntp.next_timer_ms())
    question, address = server.recvfrom(100)
    server.sendto(answer(question[40:]), address)
    sntp.advance(sntp.next_timer_ms())
    assert clock.anchor is not None
    sntp.close()
