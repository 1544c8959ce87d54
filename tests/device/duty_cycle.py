"""The cost of a duty cycle: runs the firmware over days of simulated time on a simulated board.

`python -m tests.device.duty_cycle` prints a Markdown table, which docs/explanation/duty-cycle.md shows.
"""

import sys
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from device.clock import Uptime
from device.config import Config
from device.ports import Down, Up
from device.sleeper import Sleeper, decode_slept
from flash_store.log import Log
from tools.lab.sim.nor import NorFlash
from wire.codec.packets import Connect, Publish
from wire.connection.server import ServerConnection
from wire.properties import USER_PROPERTY
from wire.time_offer import TIME_PROPERTY, encode_time

DAY_MS = 86_400_000
FIRST_UNIX_MS = 1_780_000_000_000
JOIN_MS = 2_000  # the time to join a Wi-Fi and get an address
ROUND_TRIP_MS = 20
AWAKE_FIRST_MS = 800  # from reset to the first line of the firmware
SECTORS, SECTOR_BYTES = 16, 4096  # so small that the ring wraps; the cost of a sample does not depend on it
READINGS = [("air.temperature", "Cel", 21.37), ("air.humidity", "%RH", 48.2), ("air.pressure", "Pa", 100653.3)]


class Cost(NamedTuple):
    """Totals over `wakes` wake-ups."""

    wakes: int
    connections: int
    programmed: int
    erases: int
    radio_ms: int
    awake_ms: int


class Probe:
    """Three readings, as of a BME280."""

    def start(self) -> int:
        return 10

    def sample(self) -> list[tuple[str, str, float]]:
        return READINGS


class Station:
    """A radio with the interface of MicroPython's `network.WLAN`; `on_ms` is the time that it was on."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._since_ms: int | None = None
        self._joined_ms: int | None = None
        self.on_ms = 0

    def active(self, is_active: bool) -> None:
        if self._since_ms is not None:
            self.on_ms += self._now_ms() - self._since_ms
        self._since_ms = self._now_ms() if is_active else None
        self._joined_ms = None

    def connect(self, _ssid: str, _password: str) -> None:
        assert self._since_ms is not None
        self._joined_ms = self._now_ms() + JOIN_MS

    def disconnect(self) -> None:
        self._joined_ms = None

    def isconnected(self) -> bool:
        return self._joined_ms is not None and self._now_ms() >= self._joined_ms

    def ifconfig(self) -> tuple[str, ...]:
        return ("192.168.1.20",)


NETWORK = SimpleNamespace(STA_IF=0, WLAN=None)
"""Replaces a board's module `network`; its `WLAN` is the station of the running board."""


def board_wifi() -> Any:
    """The board's own part for Wi-Fi."""
    sys.modules["network"] = NETWORK  # type: ignore[assignment]
    try:
        from device.boards.wifi import Wifi
    finally:
        del sys.modules["network"]
    return Wifi


class BrokerPort:
    """A broker; a packet to it takes half a round trip."""

    name = "broker"
    has_room = True

    def __init__(self) -> None:
        self._server = ServerConnection(receive_maximum=2000)
        self._events: deque[tuple[int, Any]] = deque()
        self._now_ms = 0

    def open(self, now_ms: int) -> None:
        self._events.append((now_ms + ROUND_TRIP_MS, Up()))
        self._now_ms = now_ms

    def advance(self, ready: int, now_ms: int) -> None:
        self._now_ms = now_ms

    def next_event(self) -> Up | Down | bytes | None:
        if self._events and self._events[0][0] <= self._now_ms:
            event: Up | Down | bytes = self._events.popleft()[1]
            return event
        return None

    def next_timer_ms(self) -> int | None:
        return self._events[0][0] if self._events else None

    def send(self, data: bytes, now_ms: int) -> None:
        self._server.receive_data(data, now_ms)
        while (event := self._server.next_event()) is not None:
            if isinstance(event, Connect):
                self._server.accept(True, {USER_PROPERTY: [(TIME_PROPERTY, encode_time(FIRST_UNIX_MS + now_ms))]})
            elif isinstance(event, Publish) and event.packet_identifier is not None:
                self._server.puback(event.packet_identifier, 0)
        answer = self._server.data_to_send()
        if answer:
            self._events.append((now_ms + ROUND_TRIP_MS, answer))

    def pause(self, now_ms: int) -> bool:
        return True

    def resume(self, now_ms: int) -> None:
        """There was no pause."""

    def log(self, text: str) -> None:
        """Drops the line."""

    def close(self) -> None:
        self._events.clear()


class Board:
    """The board that the firmware uses. Its time passes only while the device waits."""

    NAME = "simulated"
    Watchdog = None
    Network = board_wifi()

    def __init__(self) -> None:
        self.station = Station(lambda: self.ticks_ms)
        NETWORK.WLAN = lambda _interface: self.station
        self.flash = NorFlash(SECTOR_BYTES, SECTORS, 16)
        Log.format(self.flash, 1)
        self.flash.bytes_programmed = 0
        self.flash.erase_counts = [0] * SECTORS
        self.ticks_ms = 0
        self.asleep_ms = 0
        self._kept = b""

    def Uptime(self, start_ms: int) -> Uptime:  # noqa: N802 - a class of a real board
        return Uptime(lambda: self.ticks_ms, lambda later, earlier: later - earlier, start_ms)

    def open_flash(self, _path: str, _sector_count: int) -> NorFlash:
        return self.flash

    def free_heap(self) -> None:
        return None

    def reset_cause(self) -> str:
        return "deep sleep" if self._kept else "power"

    def recall(self) -> bytes:
        return self._kept

    def deep_sleep(self, sleep_ms: int, kept: bytes) -> None:
        assert decode_slept(kept) is not None
        self._kept = kept
        self.ticks_ms += sleep_ms
        self.asleep_ms += sleep_ms

    def say(self, _line: str) -> None:
        """Drops the line."""


class SleepingDevice(Sleeper):
    """The firmware with a simulated sensor, radio and broker."""

    def _make_probes(self) -> list[Probe]:
        return [Probe()]

    def _make_port(self, _config: object) -> BrokerPort:
        return BrokerPort()

    def _wait(self, timers_ms: list[int | None]) -> bool:
        """Moves the time forward to the first of these moments."""
        now_ms = self.uptime.now_ms()
        wait_ms = min(timer_ms for timer_ms in timers_ms if timer_ms is not None) - now_ms
        self.board.ticks_ms += max(1, wait_ms)
        return wait_ms <= 0


def run(connect_every: int, days: int = 4, interval_ms: int = 600_000) -> Cost:
    """Measures a device that samples every ten minutes, and whose broker always answers."""
    config = _config(connect_every, interval_ms)
    board = Board()
    connections = wakes = 0
    while wakes * interval_ms < days * DAY_MS:
        device = SleepingDevice(config, board)
        while not device.has_ended:
            device.advance()
        wakes += 1
        connections += device.connects
    awake_ms = board.ticks_ms - board.asleep_ms
    return Cost(wakes, connections, board.flash.bytes_programmed, board.flash.erases, board.station.on_ms, awake_ms)


def _config(connect_every: int, interval_ms: int) -> Config:
    return Config(
        {
            "client_id": "greenhouse-1",
            "topic": "telemetry/greenhouse",
            "network": {"ssid": "greenhouse", "password": "under glass"},
            "port": {"kind": "tcp", "host": "gateway", "port": 1883},
            "flash": {"path": "flash", "sector_count": SECTORS},
            "interval_ms": interval_ms,
            "clock": "gateway",
            "sensors": ["host"],
            "payload": "cbor",
            "duty": {"connect_every": connect_every, "awake_ms": 20_000},
            "readings_limit": 0,
            "journal": None,
        }
    )


def table(costs: dict[int, Cost]) -> list[str]:
    """Returns the lines of the Markdown table."""
    lines = [
        "| `connect_every` | connections a day | flash bytes a sample | erases a day | radio seconds a connection "
        "| radio seconds a day | awake seconds a day |",
        "|---|---|---|---|---|---|---|",
    ]
    for every, cost in costs.items():
        days = cost.wakes * 600_000 / DAY_MS
        awake_ms = cost.awake_ms + cost.wakes * AWAKE_FIRST_MS
        numbers = (
            f"{cost.connections / days:.1f}",
            f"{cost.programmed / cost.wakes:.0f}",
            f"{cost.erases / days:.1f}",
            f"{cost.radio_ms / cost.connections / 1000:.2f}",
            f"{cost.radio_ms / days / 1000:.0f}",
            f"{awake_ms / days / 1000:.0f}",
        )
        lines.append(f"| {every} | {' | '.join(numbers)} |")
    return lines


def measure(days: int = 4) -> list[str]:
    """The table for several choices."""
    return table({every: run(every, days) for every in (1, 6, 36, 144)})


if __name__ == "__main__":
    print("\n".join(measure()))
