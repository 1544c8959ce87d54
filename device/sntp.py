"""SNTP (RFC 4330): asks a time server for UTC, by UDP."""

import os
import socket
import struct

from device.clock import EARLIEST_UNIX_MS, NTP

PORT = 123
ASK_MS = 3_600_000  # time from an answer to the next question
RETRY_SHORTEST_MS, RETRY_LONGEST_MS = 15_000, 3_600_000  # time to the next question without an answer (section 10)
LOOK_UP_MS = 60_000  # longest DNS look-up, as in `device.ports.tcp`
ANSWER_MS = 2_000  # a later answer would be too inexact
LOOK_MS = 20  # time between two polls for the answer
REQUEST = b"\x23" + bytes(39)  # version 4, client; a random number follows in place of the transmit timestamp
PACKET_BYTES = 48
NEVER = bytes(8)
UNIX_S = 2_208_988_800  # 1970-01-01 in seconds since 1900
DISTANCE_MAX = 16 << 16  # seconds of error and way to the reference clock, in 16.16 bits: MAXDISP of RFC 5905
ERA_S = 1 << 32  # the seconds since 1900 wrap in 2036


class Sntp:
    """Asks the server at the start and then every hour.

    Args:
        host: the server's name or address.
        clock: `device.clock.Clock`, which gets the answer.
        watchdog: see `device.boards`.
        set_time: sets the board's own clock, by which TLS checks whether a certificate is valid.
    """

    def __init__(self, host: str, clock, watchdog, port: int = PORT, set_time=None) -> None:
        self._host, self._port = host, port
        self._clock = clock
        self._watchdog = watchdog
        self._set_time = set_time
        self._socket: socket.socket | None = None  # None unless an answer is awaited
        self._asked_ms = 0
        self._number = b""
        self._due_ms = 0
        self._retry_ms = RETRY_SHORTEST_MS
        self._turn = 0  # which of the name's addresses is asked
        self.has_asked = False  # whether the first question is over, with or without an answer

    def next_timer_ms(self) -> int:
        """When `advance` wants to be called."""
        return self._due_ms

    def advance(self, now_ms: int) -> None:
        """Asks when it is time, and polls for the answer. A server that cannot be reached is asked again later."""
        if now_ms < self._due_ms:
            return
        try:
            if self._socket is None:
                self._ask(now_ms)
            else:
                self._look(now_ms)
        except OSError:
            self._end(now_ms, False)

    def _ask(self, now_ms: int) -> None:
        self._watchdog.lengthen(LOOK_UP_MS)
        try:
            found = socket.getaddrinfo(self._host, self._port, 0, socket.SOCK_DGRAM)
        finally:
            self._watchdog.shorten()
        family, kind, protocol, _, address = found[self._turn % len(found)]
        self._socket = socket.socket(family, kind, protocol)
        self._socket.setblocking(False)
        self._number = os.urandom(8)
        self._socket.sendto(REQUEST + self._number, address)
        self._asked_ms = now_ms
        self._due_ms = now_ms + LOOK_MS

    def _look(self, now_ms: int) -> None:
        assert self._socket is not None
        try:
            answer = self._socket.recv(PACKET_BYTES)
        except OSError:  # nothing yet
            answer = b""
        unix_ms = read_answer(answer, self._number)
        if unix_ms is not None:
            self._clock.offer(NTP, unix_ms, self._asked_ms, now_ms)
            if self._set_time is not None:
                self._set_time(unix_ms)
            self._end(now_ms, True)
        elif now_ms - self._asked_ms < ANSWER_MS:
            self._due_ms = now_ms + LOOK_MS
        else:
            self._end(now_ms, False)

    def close(self) -> None:
        """Stops waiting for an answer."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _end(self, now_ms: int, is_told: bool) -> None:
        self.close()
        self.has_asked = True
        self._turn += not is_told
        self._due_ms = now_ms + (ASK_MS if is_told else self._retry_ms)
        self._retry_ms = RETRY_SHORTEST_MS if is_told else min(2 * self._retry_ms, RETRY_LONGEST_MS)


class TimedNetwork:
    """A network that counts as up only after the time server was asked: TLS needs the time to check certificates.

    Args:
        network: has `is_up`; None if the board has no network to join.
    """

    def __init__(self, network, sntp: Sntp) -> None:
        self._network = network
        self._sntp = sntp

    @property
    def is_up(self) -> bool:
        return self._sntp.has_asked and (self._network is None or self._network.is_up)


def read_answer(answer: bytes, number: bytes) -> int | None:
    """Returns UTC (ms since 1970) halfway between the server's receipt and its answer.

    None if the packet is no valid answer to the question with this number (section 5), or its server does not know the
    time itself.
    """
    if len(answer) < PACKET_BYTES or answer[24:32] != number:
        return None
    leap, mode, stratum = answer[0] >> 6, answer[0] & 7, answer[1]
    if leap == 3 or mode != 4 or not 0 < stratum < 16:  # not synchronised, not a server, or a kiss-o'-death packet
        return None
    delay, dispersion = struct.unpack(">iI", answer[4:12])
    if delay // 2 + dispersion >= DISTANCE_MAX:  # the server has lost its own source (RFC 5905, A.5.5.2)
        return None
    times = [answer[place : place + 8] for place in (16, 32, 40)]
    if NEVER in times:  # zero stands for a time that is not known, and would read as 2036
        return None
    set_ms, received_ms, sent_ms = [read_timestamp(one) for one in times]
    if not EARLIEST_UNIX_MS <= received_ms <= sent_ms <= received_ms + ANSWER_MS or set_ms > sent_ms:
        return None
    return (received_ms + sent_ms) // 2


def read_timestamp(timestamp: bytes) -> int:
    """Converts an NTP timestamp (seconds and fraction since 1900, or since 2036) to ms since 1970 (section 3)."""
    seconds, fraction = struct.unpack(">II", timestamp)
    if seconds < 1 << 31:
        seconds += ERA_S
    return (seconds - UNIX_S) * 1000 + (fraction * 1000 >> 32)
