"""From the sensors to flash: one message for each moment."""

from device import senml
from flash_store.errors import DeviceFailed, StoreFull


class Sampler:
    """Samples every `interval_ms`, until `readings_limit` readings were made over all boots (0: for ever).

    Where the store takes no message, sampling pauses until some are acknowledged: those readings are not made.

    Args:
        config: `device.config.Config`.
        log: the device's `flash_store.log.Log`.
        journal: see `device.journal`.
        clock: see `device.clock`.
        sensors: see `device.sensors`.
        say: called with each line for people.
    """

    def __init__(self, config, log, journal, clock, sensors: list, say) -> None:
        self._config = config
        self._log = log
        self._journal = journal
        self._clock = clock
        self._sensors = sensors
        self._say = say
        self._due_ms = 0
        self._full_at: int | None = None  # messages in the store when it took no more
        self._empty = False
        self._done = False
        self._check_limit()

    def next_timer_ms(self) -> int | None:
        """When `advance` wants to be called; None: never again."""
        return None if self._done else self._due_ms

    def advance(self, now_ms: int) -> None:
        """Takes a sample when it is due; moments that have passed meanwhile are left out."""
        if self._done or now_ms < self._due_ms:
            return
        interval_ms = self._config.interval_ms
        self._due_ms += interval_ms * (1 + (now_ms - self._due_ms) // interval_ms)
        if self._full_at is None or len(self._log) < self._full_at:
            self._sample(now_ms)

    def _sample(self, now_ms: int) -> None:
        samples: list = []
        for sensor in self._sensors:
            samples += sensor.sample()
        if self._config.readings_limit:
            samples = samples[: self._config.readings_limit - self._journal.made]
        if samples:
            self._store(samples, now_ms)
        elif not self._empty:
            self._say("no sensor has a value")
        self._empty = not samples

    def _store(self, samples: list, now_ms: int) -> None:
        log = self._log
        pack = senml.encode_pack(self._config.client_id, samples, log.boot_id, now_ms, self._clock.unix_seconds())
        try:
            message_id = log.append(self._config.topic, pack)
        except (StoreFull, DeviceFailed) as error:
            if self._full_at is None:
                self._say(f"store full: {error}; sampling pauses")
            self._full_at = len(log)
            return
        self._journal.add(log.epoch, message_id, len(samples))
        if self._full_at is not None:
            self._full_at = None
            self._say("store has room: sampling goes on")
        self._check_limit()

    def _check_limit(self) -> None:
        limit = self._config.readings_limit
        if limit and self._journal.made >= limit:
            self._done = True
            self._say(f"all {self._journal.made} readings made")
