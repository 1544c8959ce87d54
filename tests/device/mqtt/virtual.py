"""A device in virtual time: the firmware's own loop on simulated flash, a scripted broker at the end of its port."""

from collections.abc import Callable
from random import Random
from typing import Any

from device.clock import earliest
from device.config import Config
from device.device import Device
from device.ports import Down, Up
from tests.support.model_broker import ModelBroker
from tests.support.scripted_broker import ScriptedBroker
from tools.lab.sim.nor import NorFlash, Operation
from wire.codec.packets import Publish
from wire.connection.server import ServerConnection
from wire.errors import Closed

KEYS: dict[str, Any] = {
    "client_id": "garage-1",
    "topic": "telemetry/garage",
    "port": {"kind": "tcp", "host": "gateway.local", "port": 1883},
    "flash": {"path": "flash.bin", "sector_count": 16},
    "interval_ms": 3_600_000,
    "clock": "none",
    "sensors": [],
    "readings_limit": 0,
    "journal": None,
}
HOURS_MAX = 24
TURNS_MAX = 100_000


class VirtualBoard:
    """What outlasts a start: flash, time, and the lines that were said. It has the names of `device.boards`."""

    NAME = "virtual"
    Network = Watchdog = recall = deep_sleep = None
    WATCHDOG_MS_MAX = 0

    def __init__(self, sector_count: int = 16, seed: int = 0) -> None:
        self.flash = NorFlash(4096, sector_count, 16, seed)
        self.now_ms = 0
        self.lines: list[str] = []
        self.restarts = 0

    def Uptime(self, start_ms: int) -> "VirtualUptime":  # noqa: N802 - a class on other boards
        return VirtualUptime(self)

    def cut_power_at(self, operation: int | None, chance: Random) -> None:
        """At a byte of that flash operation, counted from 1; None: never."""
        left = operation

        def count(done: Operation) -> None:
            nonlocal left
            left = None if left is None else left - 1
            if left == 0:
                self.flash.cut_at(chance.randrange(self.flash.size_of(done)))

        self.flash.cut_at(None)
        self.flash.before_operation = count

    def open_flash(self, path: str, sector_count: int) -> NorFlash:
        return self.flash

    def say(self, text: str) -> None:
        self.lines.append(text)

    def restart(self) -> None:
        self.restarts += 1

    def unix_ms(self) -> int:
        return 0

    def set_time(self, unix_ms: int) -> None:
        pass

    def random_u32(self) -> int:
        return 0xCAFE

    def free_heap(self) -> None:
        return None

    def reset_cause(self) -> str:
        return "power"


class VirtualUptime:
    CALL_MS = 1 << 28

    def __init__(self, board: VirtualBoard) -> None:
        self._board = board
        self._start_ms = board.now_ms

    def now_ms(self) -> int:
        return self._board.now_ms - self._start_ms


class VirtualPort:
    """Takes everything at once, to a broker that answers at once; what comes is there with the next `advance`."""

    name = "virtual"
    has_room = True

    def __init__(self, broker: ScriptedBroker | ModelBroker) -> None:
        self._broker = broker
        self._server: ServerConnection | None = None
        self._events: list[Any] = []
        self.coming: list[Any] = []
        self.written: list[tuple[int, bytes]] = []  # by the device, and when

    def open(self, now_ms: int) -> None:
        self._server = ServerConnection(receive_maximum=self._broker.receive_maximum)
        self.coming = [Up()]

    def advance(self, ready: int, now_ms: int) -> None:
        self._events += self.coming
        self.coming = []

    def next_event(self) -> Any:
        return self._events.pop(0) if self._events else None

    def send(self, data: bytes, now_ms: int) -> None:
        assert self._server is not None
        self.written.append((now_ms, data))
        self._server.receive_data(data, now_ms)
        while (event := self._server.next_event()) is not None:
            if isinstance(event, Closed):
                self.coming.append(Down(event.text))
                return
            self._broker.answer(self._server, event)
        self._flush()

    @property
    def is_open(self) -> bool:
        """Whether a client is connected at the broker's end."""
        return self._server is not None and self._server.connected

    def command(self, command: Publish) -> None:
        """The broker sends it now."""
        assert self._server is not None
        self._broker.send(self._server, command)
        self._flush()

    def tell(self, topic: str, payload: bytes) -> None:
        """The broker sends a message of QoS 0 now."""
        assert self._server is not None
        self._server.publish(topic, payload, qos=0)
        self._flush()

    def cut(self) -> None:
        """The line is gone, with all that was on it."""
        self.coming = [Down("cut")] if self._server is not None else []

    def close(self) -> None:
        self._server = None
        self._events, self.coming = [], []

    def next_timer_ms(self) -> None:
        return None

    def pause(self, now_ms: int) -> bool:
        return True

    def resume(self, now_ms: int) -> None:
        pass

    def log(self, text: str) -> None:
        pass

    def _flush(self) -> None:
        assert self._server is not None
        if data := self._server.data_to_send():
            self.coming.append(data)


class VirtualDevice(Device):
    """One start; `change` takes keys of the configuration."""

    def __init__(
        self,
        board: VirtualBoard,
        broker: ScriptedBroker | ModelBroker,
        on_message: Callable[[str, bytes], Any] | None = None,
        **change: Any,
    ) -> None:
        self.port = VirtualPort(broker)
        flash = {"path": "flash.bin", "sector_count": board.flash.sector_count}
        super().__init__(Config({**KEYS, "flash": flash, **change}), board, on_message)

    def run(self, until: Callable[[], object] = lambda: False, seconds: float = HOURS_MAX * 3600) -> bool:
        """Runs until then, or for so long; returns whether it came to that."""
        end_ms = self.uptime.now_ms() + int(seconds * 1000)
        for _ in range(TURNS_MAX):
            if until():
                return True
            if self.has_ended or self.uptime.now_ms() >= end_ms:
                return False
            self._end_ms = end_ms
            self.advance()
        raise AssertionError(f"the device does not come to rest: {self.board.lines[-5:]}")

    def _make_port(self, _config: object) -> VirtualPort:
        return self.port

    def _wait(self, timers_ms: list[int | None]) -> bool:
        if not self.port.coming:
            due_ms = min(earliest(timers_ms), self._end_ms)
            self.board.now_ms += max(0, due_ms - self.uptime.now_ms())
        self._ready = 1 if self.port.coming else 0
        return bool(self._ready)
