"""Samples the sensors and stores the readings of each moment as one message in flash."""

import struct
from binascii import crc32

from device.readings.payload import encoder
from flash_store.errors import DeviceFailed, HeapFull, StoreFull

ANCHOR, ANCHOR_ERROR = "clock", "clock_error"  # readings of an anchor: the source of UTC, its largest error in s
KEPT = "<dq"  # the value that was sent last, and the uptime (ms) of that


class Sampler:
    """Samples every `interval_ms`, until `readings_limit` readings were made over all boots (0: for ever).

    All sensors begin to measure at the same time, and are read together when the slowest has finished. When the store
    is full, sampling pauses until messages are acknowledged: no readings are made during the pause.

    Args:
        config: `device.config.Config`.
        log: the device's `flash_store.log.Log`.
        journal: see `device.readings.journal`.
        clock: `device.clock.Clock`.
        probes: a `device.sensors.probe.Probe` for each sensor.
        say: called with each line of text for the console and the log.
        qos0_queue: `device.mqtt.qos0_queue.Qos0Queue` of a device whose readings go out at QoS 0.
    """

    def __init__(self, config, log, journal, clock, probes: list, say, qos0_queue=None) -> None:
        self._config = config
        self._qos0_queue = qos0_queue
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
        self._measured_ms: int | None = None  # when the sensors will have measured; None: they do not measure now
        self._full_at: int | None = None  # number of messages in the store when it was full; None: it is not full
        self.message_bytes = 0  # topic and payload of the last message
        self._empty = False
        self._done = False
        self._check_limit()

    def next_timer_ms(self) -> int | None:
        """When `advance` wants to be called; None: never again."""
        if self._done:
            return None
        return self._due_ms if self._measured_ms is None else self._measured_ms

    def advance(self, now_ms: int) -> None:
        """Takes a sample when it is due; moments that were missed are skipped."""
        if self._clock.untold and self.has_room:
            self._store_anchor()
        if self._measured_ms is None:
            self._start(now_ms)
        if not self._done and self._measured_ms is not None and now_ms >= self._measured_ms:
            self._measured_ms = None
            self._sample(now_ms)

    @property
    def has_sampled(self) -> bool:
        """Whether the first sample since the start is taken, or was skipped."""
        return self._done or (self._due_ms > 0 and self._measured_ms is None)

    @property
    def has_room(self) -> bool:
        """Whether the store may have room for the next message: it never refused one, or has fewer messages now."""
        return self._full_at is None or len(self._log) < self._full_at

    def encode_bands(self) -> bytes:
        """Encodes the values that thresholds compare with, for `decode_bands` after a deep sleep."""
        return self._dead_band.encode()

    def decode_bands(self, content: bytes) -> None:
        self._dead_band.decode(content)

    def _start(self, now_ms: int) -> None:
        if self._done or now_ms < self._due_ms:
            return
        interval_ms = self.interval_ms
        self._due_ms += interval_ms * (1 + (now_ms - self._due_ms) // interval_ms)
        if self.has_room:
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
        """Changes the interval from now on; a sample that is due earlier stays due."""
        self.interval_ms = self._dead_band.interval_ms = interval_ms
        self._due_ms = min(self._due_ms, now_ms + interval_ms)

    def tell(self, samples: list, now_ms: int) -> int | None:
        """Stores readings about the device itself, at QoS 1 or 2 even if its other readings have QoS 0.

        Returns the message's id, None if there is no room.
        """
        try:
            return self._put(samples, now_ms, self._clock.unix_ms(now_ms))
        except (StoreFull, DeviceFailed):
            return None

    def _store(self, samples: list, now_ms: int) -> None:
        unix_ms = self._clock.unix_ms(now_ms)
        if self._qos0_queue is not None:
            self._qos0_queue.add(self._config.topic, self._encode(samples, now_ms, unix_ms))
        elif self._append(samples, now_ms, unix_ms) is None:
            return
        self._dead_band.note(samples, now_ms)
        self._check_limit()

    def _store_anchor(self) -> None:
        """Stores the anchor as a message, which gives UTC to the earlier readings of this boot."""
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
        self.message_bytes = len(self._config.topic) + len(pack)
        self._journal.add(self._log.epoch, message_id, len(samples))
        return message_id

    def _check_limit(self) -> None:
        limit = self._config.readings_limit
        if limit and self._journal.made >= limit:
            self._done = True
            self._say(f"all {self._journal.made} readings made")


class DeadBand:
    """Selects the values to send: a value that differs enough from the last one sent, or when that is too long ago.

    If a name is absent from one sample, its next value is always sent, so that a returning sensor is seen at once.

    Args:
        bands: for each name (threshold, heartbeat in ms). Values of other names are always sent. A text is sent when it
            differs at all.
        interval_ms: time between two samples.
    """

    def __init__(self, bands: dict, interval_ms: int) -> None:
        self._bands = bands
        self.interval_ms = interval_ms
        self._sent: dict = {}  # name: (value, or for a text its `_mark`; uptime in ms)

    def choose(self, samples: list, now_ms: int) -> list:
        """Returns those of one moment's (name, unit, value) that are to be sent."""
        if not self._bands:
            return samples
        present = [name for name, _, _ in samples]
        for name in list(self._sent):
            if name not in present:
                self._sent.pop(name)
        return [sample for sample in samples if self._is_due(sample, now_ms)]

    def note(self, samples: list, now_ms: int) -> None:
        """Notes that these values were sent."""
        for name, _, value in samples:
            if name in self._bands:
                self._sent[name] = (self._mark(value), now_ms)

    def encode(self) -> bytes:
        """Encodes the values that were sent, to be kept through a deep sleep: 16 bytes for each band."""
        return b"".join([struct.pack(KEPT, *self._sent.get(name, (0.0, -1))) for name in sorted(self._bands)])

    def decode(self, content: bytes) -> None:
        """Restores what `encode` returned before the sleep; ignores content for a different number of bands."""
        names = sorted(self._bands)
        if len(content) != len(names) * struct.calcsize(KEPT):
            return
        for place, name in enumerate(names):
            sent = struct.unpack_from(KEPT, content, place * struct.calcsize(KEPT))
            if sent[1] >= 0:
                self._sent[name] = sent

    def _is_due(self, sample: tuple, now_ms: int) -> bool:
        name, _, value = sample
        if name not in self._sent:
            return True
        threshold, heartbeat_ms = self._bands[name]
        sent, sent_ms = self._sent[name]
        # Send now, because the next sample would be too late for the heartbeat.
        if now_ms + self.interval_ms - sent_ms > heartbeat_ms:
            return True
        return self._mark(value) != sent if isinstance(value, str) else abs(value - sent) >= threshold

    def _mark(self, value):
        """Returns what is compared and kept: a number, or for a text a hash that a board float holds exactly."""
        return crc32(value.encode()) & 0xFF_FFFF if isinstance(value, str) else value
