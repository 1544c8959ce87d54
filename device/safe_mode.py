"""Safe mode: a device whose configuration or flash cannot be used reports the error and does not touch its flash."""

import select

from device.assembly import make_port
from device.clock import Clock, earliest
from device.failed import let_interrupt
from device.mqtt import Session
from device.mqtt.brokers import Brokers
from device.mqtt.publisher import Publisher
from device.ports import Down
from device.watchdog import NoWatchdog

SAY_MS = 5_000  # time between two reports over a serial link
WAIT_MS = 1_000  # until a closed line is opened again
TURN_MS = 500  # longest turn of the loop: a watchdog may have to be fed every second


class NoSettings:
    """Settings of a `NoLog`: there are none, and none is stored."""

    def get(self, key: str) -> bytes | None:
        return None

    def set(self, key: str, value: bytes) -> None:
        pass


class NoLog:
    """Stands for the log, so that the session and the publisher work without flash: it is empty and stores nothing."""

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
    """Reports the error on the console, over a serial link and at the status topic, again and again.

    Args:
        keys: `device.config.Readable`.
        text: the error.
        longest_ms: the time after which it returns; None: it never returns.
        watchdog: as in `device.device.Device`.
    """
    let_interrupt(board)
    board.say(text)
    watchdog = watchdog or NoWatchdog()
    poller = select.poll()
    uptime = board.Uptime()
    network = None
    if keys.networks and board.Network:
        network = board.Network(keys.networks, keys.host_name, board.say, watchdog, keys.country)
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
    """A serial port that is used without MQTT, only to log lines of text; it is opened again when it hangs up."""

    def __init__(self, port) -> None:
        self._port = port
        self._open_ms: int | None = 0  # when to open it; None while it is open

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
    from device.mqtt.status import Status

    clock = Clock(boot_id)
    log = NoLog()
    publisher = Publisher(log, keys.client_id, clock, board.say)
    status = Status(keys, lambda: {"error": text})
    brokers = Brokers(
        keys.ports[:1], lambda config: make_port(config, poller, boot_id, board, watchdog), log, board.say
    )
    return Session(brokers, keys, publisher, clock, board.say, status=status, network=network)
