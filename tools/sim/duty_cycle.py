"""What a duty cycle costs: the firmware's own parts over days of simulated time, without a board.

`python -m tools.sim.duty_cycle` prints a Markdown table, which docs/explanation/duty-cycle.md shows.
"""

from collections import deque
from typing import Any, NamedTuple

from device.clock import Clock
from device.config import Config
from device.duty import ASLEEP, SENDING, Duty, sleep_ms
from device.journal import NoJournal
from device.ports import Down, Up
from device.publisher import Publisher
from device.sampler import Sampler
from device.session import Session
from device.sleep_memory import Slept, decode, encode
from flash_store.block_device import IOCTL_BLOCK_COUNT, IOCTL_BLOCK_ERASE, IOCTL_BLOCK_SIZE
from flash_store.log import Log
from wire.packets import Connect, Publish
from wire.properties import USER_PROPERTY
from wire.server import ServerConnection
from wire.time_offer import TIME_PROPERTY, encode_time

DAY_MS = 86_400_000
FIRST_UNIX_MS = 1_780_000_000_000
STEP_MS = 5
JOIN_MS = 2_000  # to join a Wi-Fi and get an address
ROUND_TRIP_MS = 20
AWAKE_FIRST_MS = 800  # from reset to the first line of the firmware
SECTORS, SECTOR_BYTES = 16, 4096  # small, so that the ring goes round; what a sample costs does not depend on it
READINGS = [("air.temperature", "Cel", 21.37), ("air.humidity", "%RH", 48.2), ("air.pressure", "Pa", 100653.3)]


class Cost(NamedTuple):
    """Of `wakes` times awake."""

    wakes: int
    connections: int
    programmed: int
    erases: int
    radio_ms: int
    awake_ms: int


class RamFlash:
    """NOR flash that counts what wears it."""

    def __init__(self) -> None:
        self._content = bytearray(b"\xff" * (SECTORS * SECTOR_BYTES))
        self.programmed = self.erases = 0

    def readblocks(self, block: int, buffer: Any, offset: int = 0) -> None:
        start = block * SECTOR_BYTES + offset
        buffer[:] = self._content[start : start + len(buffer)]

    def writeblocks(self, block: int, buffer: Any, offset: int = 0) -> None:
        start = block * SECTOR_BYTES + offset
        self._content[start : start + len(buffer)] = buffer
        self.programmed += len(buffer)

    def ioctl(self, operation: int, argument: int) -> int:
        if operation == IOCTL_BLOCK_ERASE:
            start = argument * SECTOR_BYTES
            self._content[start : start + SECTOR_BYTES] = b"\xff" * SECTOR_BYTES
            self.erases += 1
        return {IOCTL_BLOCK_COUNT: SECTORS, IOCTL_BLOCK_SIZE: SECTOR_BYTES}.get(operation, 0)


class Probe:
    """Three readings, as of a BME280."""

    def start(self) -> int:
        return 10

    def sample(self) -> list[tuple[str, str, float]]:
        return READINGS


class RadioPort:
    """A Wi-Fi with a broker behind it, both ways half a round trip long."""

    name = "broker"

    def __init__(self) -> None:
        self._server = ServerConnection(receive_maximum=2000)
        self._events: deque[tuple[int, Any]] = deque()
        self._opened_ms: int | None = None

    def open(self, now_ms: int) -> None:
        self._opened_ms = now_ms
        self._events.append((now_ms + JOIN_MS + ROUND_TRIP_MS, Up()))
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

    def close(self) -> None:
        self._events.clear()


def run(connect_every: int, days: int = 4, interval_ms: int = 600_000) -> Cost:
    """A device that samples every ten minutes, and whose broker is always there."""
    config = _config(connect_every, interval_ms)
    flash = RamFlash()
    Log.format(flash, 1)
    flash.programmed = flash.erases = 0
    memory = b""
    connections = radio_ms = awake_ms = wakes = 0
    while wakes * interval_ms < days * DAY_MS:
        memory, awake, radio = _wake(config, flash, memory)
        wakes += 1
        connections += radio > 0
        radio_ms += radio
        awake_ms += awake
    return Cost(wakes, connections, flash.programmed, flash.erases, radio_ms, awake_ms)


def _wake(config: Config, flash: RamFlash, memory: bytes) -> tuple[bytes, int, int]:
    """One time awake: what the sleep memory holds then, how long it took, and for how long the radio was on."""
    slept = decode(memory)
    log = Log(flash)
    now_ms = woken_ms = slept.uptime_ms if slept else 0
    clock = Clock(slept.boot_id if slept else log.boot_id, "gateway")
    if slept and slept.anchor:
        clock.resume(slept.anchor, now_ms, config.interval_ms)
    assert config.duty is not None
    duty = Duty(config.duty.connect_every, config.duty.awake_ms, *((slept.samples, slept.failures) if slept else ()))
    sampler = Sampler(config, log, NoJournal(), clock, [Probe()], _keep_quiet)
    session = Session(RadioPort(), config.client_id, Publisher(log, config.client_id, _keep_quiet), clock, _keep_quiet)
    radio_from_ms: int | None = None
    while True:
        sampler.advance(now_ms)
        phase = duty.advance(now_ms, sampler.has_sampled, len(log), sampler.is_filling())
        if phase == ASLEEP:
            break
        if phase == SENDING:
            radio_from_ms = now_ms if radio_from_ms is None else radio_from_ms
            session.advance(0, now_ms)
        now_ms += STEP_MS
    session.close(now_ms)
    log.flush()
    log.idle()
    due_ms = sampler.next_timer_ms()
    assert due_ms is not None
    pause_ms = sleep_ms(due_ms, now_ms)
    kept = Slept(clock.boot_id, now_ms + pause_ms, clock.anchor, duty.samples, duty.failures, sampler.encode_bands())
    awake_ms = now_ms - woken_ms
    return encode(kept), awake_ms, 0 if radio_from_ms is None else now_ms - radio_from_ms


def _config(connect_every: int, interval_ms: int) -> Config:
    return Config(
        {
            "client_id": "greenhouse-1",
            "topic": "telemetry/greenhouse",
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


def _keep_quiet(_line: str) -> None:
    """Nobody listens."""


def table(costs: dict[int, Cost]) -> list[str]:
    """The lines of the Markdown table."""
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
