"""From the sensors to flash: one message for each moment."""

from device.dead_band import DeadBand
from device.payload import encoder
from flash_store.errors import DeviceFailed, HeapFull, StoreFull

ANCHOR, ANCHOR_ERROR = "clock", "clock_error"  # the readings of an anchor: who told UTC, and how far off (s) at most


class Sampler:
    """Samples every `interval_ms`, until `readings_limit` readings were made over all boots (0: for ever).

    All sensors begin to measure at once, and are read together when the slowest has finished.
    Where the store takes no message, sampling pauses until some are acknowledged: those readings are not made.

    Args:
        config: `device.config.Config`.
        log: the device's `flash_store.log.Log`.
        journal: see `device.journal`.
        clock: `device.clock.Clock`.
        probes: a `device.sensors.probe.Probe` for each sensor.
        say: called with each line for people.
        unstored: `device.unstored.Unstored` of a device whose readings go out at QoS 0.
    """

    def __init__(self, config, log, journal, clock, probes: list, say, unstored=None) -> None:
        self._config = config
        self._unstored = unstored
        self.interval_ms = config.interval_ms
        self._log = log
        self._journal = journal
        self._clock = clock
        self._probes = probes
        self._say = say
        self._encode_pack = encoder(config.payload)
        bands: dict = {}
        for sensor in config.sensors:
            bands.update(sensor.bands)
        self._dead_band = DeadBand(bands, config.interval_ms)
        self._due_ms = 0
        self._measured_ms: int | None = None  # when the sensors, which are measuring, will have finished
        self._full_at: int | None = None  # messages in the store when it took no more
        self._message_bytes = 0  # of the last one
        self._empty = False
        self._done = False
        self._check_limit()

    def next_timer_ms(self) -> int | None:
        """When `advance` wants to be called; None: never again."""
        if self._done:
            return None
        return self._due_ms if self._measured_ms is None else self._measured_ms

    def advance(self, now_ms: int) -> None:
        """Takes a sample when it is due; moments that have passed meanwhile are left out."""
        if self._clock.untold and self._has_room():
            self._store_anchor()
        if self._measured_ms is None:
            self._start(now_ms)
        if not self._done and self._measured_ms is not None and now_ms >= self._measured_ms:
            self._measured_ms = None
            self._sample(now_ms)

    @property
    def has_sampled(self) -> bool:
        """Whether the first moment since the start is over."""
        return self._done or (self._due_ms > 0 and self._measured_ms is None)

    def is_filling(self) -> bool:
        """Whether the store had better be emptied soon."""
        from device.duty import is_filling  # only a device that sleeps asks

        return not self._has_room() or is_filling(len(self._log), self._message_bytes, self._config.sector_count)

    def encode_bands(self) -> bytes:
        """What the thresholds compare with, for `decode_bands` after a deep sleep."""
        return self._dead_band.encode()

    def decode_bands(self, content: bytes) -> None:
        self._dead_band.decode(content)

    def _start(self, now_ms: int) -> None:
        if self._done or now_ms < self._due_ms:
            return
        interval_ms = self.interval_ms
        self._due_ms += interval_ms * (1 + (now_ms - self._due_ms) // interval_ms)
        if self._has_room():
            self._measured_ms = now_ms + max([probe.start() for probe in self._probes] + [0])

    def _sample(self, now_ms: int) -> None:
        samples: list = []
        for probe in self._probes:
            samples += probe.sample()
        if self._probes and bool(samples) == self._empty:
            self._empty = not samples
            if self._empty:
                self._say("no sensor has a value")
        samples = self._dead_band.choose(samples, now_ms)
        if self._config.readings_limit:
            samples = samples[: self._config.readings_limit - self._journal.made]
        if samples:
            self._store(samples, now_ms)

    def change_interval(self, interval_ms: int, now_ms: int) -> None:
        """From now on; a sample that is due before stays so."""
        self.interval_ms = self._dead_band.interval_ms = interval_ms
        self._due_ms = min(self._due_ms, now_ms + interval_ms)

    def tell(self, samples: list, now_ms: int) -> int | None:
        """Stores what the device says of itself, whatever the QoS of its readings; returns the message's id.

        None where there is no room.
        """
        try:
            return self._put(samples, now_ms, self._clock.unix_ms(now_ms))
        except (StoreFull, DeviceFailed):
            return None

    def _store(self, samples: list, now_ms: int) -> None:
        unix_ms = self._clock.unix_ms(now_ms)
        if self._unstored is not None:
            self._unstored.add(self._config.topic, self._encode(samples, now_ms, unix_ms))
        elif self._append(samples, now_ms, unix_ms) is None:
            return
        self._dead_band.note(samples, now_ms)
        self._check_limit()

    def _store_anchor(self) -> None:
        """Gives UTC to what this boot measured before it was known."""
        anchor_ms, unix_ms, error_ms = self._clock.anchor
        told = [(ANCHOR, None, self._clock.source), (ANCHOR_ERROR, "s", error_ms / 1000)]
        self._clock.untold = self._append(told, anchor_ms, unix_ms) is None

    def _encode(self, samples: list, uptime_ms: int, unix_ms: int | None) -> bytes:
        return self._encode_pack(self._config.client_id, samples, self._clock.boot_id, uptime_ms, unix_ms)

    def _append(self, samples: list, uptime_ms: int, unix_ms: int | None) -> int | None:
        try:
            message_id = self._put(samples, uptime_ms, unix_ms)
        except HeapFull as error:
            self._say(f"sample dropped: {error}")
            return None
        except (StoreFull, DeviceFailed) as error:
            if self._full_at is None:
                self._say(f"store full: {error}; sampling pauses")
            self._full_at = len(self._log)
            return None
        if self._full_at is not None:
            self._full_at = None
            self._say("store has room: sampling goes on")
        return message_id

    def _put(self, samples: list, uptime_ms: int, unix_ms: int | None) -> int:
        """Returns the message's id. Raises StoreFull, DeviceFailed."""
        pack = self._encode(samples, uptime_ms, unix_ms)
        message_id = self._log.append(self._config.topic, pack, self._config.qos or 1)
        self._message_bytes = len(self._config.topic) + len(pack)
        self._journal.add(self._log.epoch, message_id, len(samples))
        return message_id

    def _has_room(self) -> bool:
        return self._full_at is None or len(self._log) < self._full_at

    def _check_limit(self) -> None:
        limit = self._config.readings_limit
        if limit and self._journal.made >= limit:
            self._done = True
            self._say(f"all {self._journal.made} readings made")
