"""Moments, messages and sensors that fail, on a store in a file."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud.transforms.record import Record
from cloud.transforms.senml import resolve, resolve_cbor
from device.clock import Clock
from device.config import Config
from device.readings import Sampler
from device.readings.journal import NoJournal
from device.sensors.driver import Driver, SensorFailed
from device.sensors.probe import Probe
from flash_store.devices.file import FileFlash
from flash_store.log import Log

NOON_MS = 1_780_000_000_000
QUIET = {"kind": "host", "thresholds": {"load": 1000}, "heartbeat_ms": 60_000}
NO_BOARD = {"kind": "bme280", "bus": 0, "scl": 22, "sda": 21, "address": 118}


class Scripted(Driver):
    """A driver that measures for a time, and then gives the next of the values; an exception is raised."""

    def __init__(self, measure_ms: int, values: list[Any]) -> None:
        self._measure_ms = measure_ms
        self._values = values

    def start(self) -> int:
        return self._measure_ms

    def sample(self) -> list[Any]:
        value = self._values.pop(0)
        if isinstance(value, Exception):
            raise value
        return [("value", None, value)]


class ScriptedConfig:
    """The configuration of a sensor with that name."""

    bands: dict[str, Any] = {}  # noqa: RUF012 - none of them has any

    def __init__(self, name: str, values: list[Any], measure_ms: int = 0) -> None:
        self.prefix = name + "."
        self.error_name = name + ".error"
        self.driver = Scripted
        self.arguments = (measure_ms, values)


class Bench:
    """A sampler with its store."""

    def __init__(self, folder: Path, sensors: list[Any], scripted: list[ScriptedConfig], **change: Any) -> None:
        keys = {
            "client_id": "garage-1",
            "topic": "telemetry/garage",
            "port": {"kind": "tcp", "host": "gateway", "port": 1883},
            "flash": {"path": "flash", "sector_count": 16},
            "interval_ms": 1000,
            "clock": "none",
            "sensors": sensors,
            "readings_limit": 0,
            "journal": None,
            **change,
        }
        config = Config(keys)
        self.flash = FileFlash(str(folder / "flash"), sector_count=16)
        Log.format(self.flash, 1)
        self._log = Log(self.flash)
        self.clock = Clock(self._log.boot_id, "gateway")
        self.said: list[str] = []
        probes = [Probe(sensor) for sensor in scripted or config.sensors]
        self.sampler = Sampler(config, self._log, NoJournal(), self.clock, probes, self.said.append)
        self._is_cbor = config.payload == "cbor"

    def acknowledge_all(self) -> None:
        for message_id, *_ in list(self._log.messages(0)):
            self._log.acknowledge(message_id)
        self._log.flush()
        self._log.idle()

    def messages(self) -> list[list[Record]]:
        return [
            (resolve_cbor if self._is_cbor else resolve)(bytes(payload))
            for _, _, _, _, payload in self._log.messages(0)
        ]


@pytest.fixture
def new_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(sensors: list[Any], scripted: list[ScriptedConfig], **change: Any) -> Bench:
        made.append(Bench(tmp_path, sensors, scripted, **change))
        return made[-1]

    yield make
    for bench in made:
        bench.flash.close()


def metrics(records: list[Record]) -> dict[str, float | str | None]:
    return {record.metric: record.value_string if record.value is None else record.value for record in records}


def test_readings_of_one_moment_are_one_message_when_the_slowest_has_measured(new_bench: Callable[..., Bench]) -> None:
    slow, quick = ScriptedConfig("slow", [1, 2], 750), ScriptedConfig("quick", [3, 4])
    bench = new_bench(["host"], [slow, quick])
    bench.sampler.advance(0)
    assert bench.messages() == []
    assert bench.sampler.next_timer_ms() == 750
    for now_ms in (749, 750, 999):
        bench.sampler.advance(now_ms)
    assert [metrics(message) for message in bench.messages()] == [{"slow.value": 1, "quick.value": 3}]
    assert bench.sampler.next_timer_ms() == 1000
    for now_ms in (1000, 1800):
        bench.sampler.advance(now_ms)
    assert [message[0].uptime_ms for message in bench.messages()] == [750, 1800]


def test_failing_sensor_is_told_with_its_reason_and_stops_no_other(new_bench: Callable[..., Bench]) -> None:
    failing = ScriptedConfig("air", [SensorFailed("no answer"), 21.5, float("nan"), MemoryError()])
    bench = new_bench(["host"], [failing, ScriptedConfig("soil", [1, 2, 3, 4])])
    for now_ms in range(0, 4000, 1000):
        bench.sampler.advance(now_ms)
    assert [metrics(message) for message in bench.messages()] == [
        {"air.error": "no answer", "soil.value": 1},
        {"air.value": 21.5, "soil.value": 2},
        {"air.error": "value is nan", "soil.value": 3},
        {"air.error": "MemoryError", "soil.value": 4},
    ]


def test_machine_without_the_hardware_says_so_in_the_readings_place(new_bench: Callable[..., Bench]) -> None:
    bench = new_bench([NO_BOARD, "host"], [], payload="cbor")
    bench.sampler.advance(0)
    (message,) = bench.messages()
    found = metrics(message)
    assert found["bme280.error"] == "ModuleNotFoundError No module named 'machine'"
    assert isinstance(found["load"], float)


def test_message_says_the_moment_in_boot_and_uptime(new_bench: Callable[..., Bench]) -> None:
    bench = new_bench(["host"], [ScriptedConfig("a", [1])])
    bench.sampler.advance(1234)
    ((record,),) = bench.messages()
    assert (record.device, record.boot_id, record.uptime_ms, record.time_us) == ("garage-1", 1, 1234, None)


def test_heartbeat_and_threshold_of_the_configuration_hold(new_bench: Callable[..., Bench]) -> None:
    bench = new_bench([QUIET], [])
    bench.sampler.advance(0)
    bench.sampler.advance(1000)
    first, second = (metrics(message) for message in bench.messages())
    assert set(first) - set(second) == {"load"}


def test_anchor_is_a_message_of_its_own_moment_and_later_readings_have_utc(new_bench: Callable[..., Bench]) -> None:
    bench = new_bench(["host"], [ScriptedConfig("a", [1, 2])])
    bench.sampler.advance(0)
    bench.clock.offer("gateway", NOON_MS, 400, 500)
    for now_ms in (500, 1000):
        bench.sampler.advance(now_ms)
    before, anchor, after = bench.messages()
    assert (before[0].uptime_ms, before[0].time_us) == (0, None)
    assert metrics(anchor) == {"clock": "gateway", "clock_error": 0.05}
    assert (anchor[0].boot_id, anchor[0].uptime_ms, anchor[0].time_us) == (1, 450, NOON_MS * 1000)
    assert (after[0].uptime_ms, after[0].time_us) == (1000, (NOON_MS + 550) * 1000)


def test_anchor_waits_for_room_in_the_store(new_bench: Callable[..., Bench]) -> None:
    bench = new_bench(["host"], [ScriptedConfig("a", list(range(4000)))], interval_ms=1)
    for now_ms in range(3000):
        bench.sampler.advance(now_ms)
        if bench.said:
            break
    assert "sampling pauses" in bench.said[0]
    assert not bench.sampler.has_room
    bench.clock.offer("gateway", NOON_MS, 4000, 4000)
    bench.sampler.advance(4001)
    assert (bench.clock.untold, bench.sampler.has_room) == (True, False)
    bench.acknowledge_all()
    bench.sampler.advance(4002)
    assert (bench.clock.untold, bench.sampler.has_room) == (False, True)
    assert metrics(bench.messages()[0]) == {"clock": "gateway", "clock_error": 0}


def test_thresholds_hold_over_a_deep_sleep(new_bench: Callable[..., Bench], tmp_path: Path) -> None:
    first = new_bench([QUIET], [])
    first.sampler.advance(0)
    kept = first.sampler.encode_bands()
    (tmp_path / "flash").unlink()
    second = new_bench([QUIET], [])
    second.sampler.decode_bands(kept)
    sampled = []
    for now_ms in (1000, 1000):
        sampled.append(second.sampler.has_sampled)
        second.sampler.advance(now_ms)
    assert sampled == [False, True]
    assert "load" not in metrics(second.messages()[0])
