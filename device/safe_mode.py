"""A device whose configuration or flash cannot be used: it says so where it can, and leaves its flash alone."""

import select

from device.assembly import make_port
from device.brokers import Brokers
from device.clock import Clock, earliest
from device.ports import Down
from device.publisher import Publisher
from device.session import Session
from device.watchdog import NoWatchdog

SAY_MS = 5_000  # from one line over a serial link to the next
WAIT_MS = 1_000
TURN_MS = 500  # at most: a watchdog may wait for no longer than a second


class NoSettings:
    """None is there, and none is kept."""

    def get(self, key: str) -> bytes | None:
        return None

    def set(self, key: str, value: bytes) -> None:
        pass


class NoLog:
    """Nothing is stored and nothing is sent."""

    last_id = epoch = 0
    settings = NoSettings()

    def messages(self, after: int = 0):
        return iter(())

    def ids(self, count: int) -> list:
        return []

    def pubrecs(self) -> list:
        return []

    def flush(self) -> None:
        pass


def run(keys, text: str, board, longest_ms: int | None = None, watchdog=None) -> None:
    """Says it on the console, over a serial link and at the status topic, until the power is cut.

    Args:
        keys: `device.config.Readable`.
        text: what is wrong.
        longest_ms: it returns after that; None: never.
        watchdog: as in `device.device.Device`.
    """
    board.say(text)
    watchdog = watchdog or NoWatchdog()
    poller = select.poll()
    uptime = board.Uptime()
    network = None
    if keys.networks and board.Network:
        network = board.Network(keys.networks, keys.host_name, board.say, watchdog)
    speaker = _make_speaker(keys, text, poller, network, board, watchdog)
    ready = say_ms = now_ms = 0
    while longest_ms is None or now_ms < longest_ms:
        now_ms = uptime.now_ms()
        watchdog.feed()
        if network is not None:
            network.advance(now_ms)
        speaker.advance(ready, now_ms)
        if now_ms >= say_ms:
            say_ms = now_ms + SAY_MS
            speaker.log(text)
        timer_ms = earliest([speaker.next_timer_ms(), now_ms + TURN_MS])
        found = poller.poll(max(0, timer_ms - uptime.now_ms()))
        ready = found[0][1] if found else 0


class Line:
    """A port without MQTT; one that has hung up is opened again."""

    def __init__(self, port) -> None:
        self._port = port
        self._open_ms: int | None = 0  # it is closed until then

    def advance(self, ready: int, now_ms: int) -> None:
        if self._open_ms is None:
            self._port.advance(ready, now_ms)
            while (event := self._port.next_event()) is not None:
                if isinstance(event, Down):
                    self._close(now_ms)
        elif now_ms >= self._open_ms:
            self._open(now_ms)

    def log(self, text: str) -> None:
        if self._open_ms is None:
            self._port.log(text)

    def next_timer_ms(self) -> int | None:
        return self._port.next_timer_ms() if self._open_ms is None else self._open_ms

    def _open(self, now_ms: int) -> None:
        self._open_ms = None
        try:
            self._port.open(now_ms)
        except OSError:
            self._close(now_ms)

    def _close(self, now_ms: int) -> None:
        self._port.close()
        self._open_ms = now_ms + WAIT_MS


def _make_speaker(keys, text: str, poller, network, board, watchdog):
    boot_id = board.random_u32()
    if keys.status is None:
        return Line(make_port(keys.ports[0], poller, boot_id, board, watchdog))
    from device.status import Status

    clock = Clock(boot_id)
    log = NoLog()
    publisher = Publisher(log, keys.client_id, clock, board.say)
    status = Status(keys, {"error": text})
    brokers = Brokers(keys.ports[:1], lambda config: make_port(config, poller, boot_id, board, watchdog), log)
    return Session(brokers, keys, publisher, clock, board.say, status=status, network=network)
