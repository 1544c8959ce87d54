"""A battery-powered device: when it connects, what it keeps through a deep sleep, and what it does while awake.

It wakes for each sample, stores it, and sleeps again. Every n-th time, and whenever the store fills up, it connects,
sends everything that the store holds, and sleeps then. After each attempt in a row that sends nothing, it waits longer
before the next one.

Memory that is powered during the sleep (for example `machine.RTC().memory`) holds

    HEAD, the DeadBand's bytes, CRC-32

After a power cut this memory is empty, or its CRC is wrong: then the device begins a new boot.
"""

import binascii
import struct

from device.device import Device
from device.values import ConfigError

SAMPLING, SENDING, ASLEEP = "sampling", "sending", "asleep"
BACKOFF_MAX = 8  # the longest wait for the next attempt is this many times `connect_every`, after three failures
SECTOR_BYTES, RESERVED = 4096, 4  # of the store; sectors that are erased ahead, reserved, or only partly used
RECORD_BYTES = 32  # of a message on flash, in addition to topic and payload
SHORTEST_SLEEP_MS = 1_000  # waking takes about as long
MAGIC = 0x4846_5301  # its last byte is the version
HEAD = "<IIqB3qHB"
NO_ANCHOR = (0, 0, 0)
LISTEN_MS = 1_000  # how long the device stays connected at least, to receive messages that wait for it


class Duty:
    """Decides what the device does in one time awake, as a state machine: SAMPLING, SENDING (or not), ASLEEP.

    Args:
        connect_every: number of samples between two connections.
        awake_ms: the longest time that one attempt to connect and send may take.
        samples: how often the device has woken since the last attempt. None after a power cut: then it connects at
            once, so that an installer sees that it can connect, and the device learns the time.
        failures: number of attempts in a row in which nothing was sent.
    """

    def __init__(self, connect_every: int, awake_ms: int, samples: int | None = None, failures: int = 0) -> None:
        self._connect_every = connect_every
        self._awake_ms = awake_ms
        self.samples = connect_every if samples is None else samples
        self.failures = failures
        self.phase = SAMPLING
        self._until_ms = 0  # when sending ends at the latest
        self._waiting = 0  # messages in the store when sending began

    def advance(self, now_ms: int, has_sampled: bool, waiting: int, is_filling: bool, repeats: bool = False) -> str:
        """To be called in each turn of the loop; returns the phase.

        In SENDING the device connects. In ASLEEP it goes to sleep, and keeps `samples` and `failures`.

        Args:
            has_sampled: whether this time's readings are stored.
            waiting: number of messages in the store.
            is_filling: whether the store is filling up, so that the device should connect sooner.
            repeats: whether the device sends acknowledged messages again: it stays awake for them, and comes back
                to them when it connects the next time.
        """
        if self.phase == SAMPLING and has_sampled:
            self.samples += 1
            if waiting and self._is_due(is_filling):
                self.phase = SENDING
                self._until_ms = now_ms + self._awake_ms
                self._waiting = waiting
            else:
                self.phase = ASLEEP
        elif self.phase == SENDING and (not (waiting or repeats) or now_ms >= self._until_ms):
            self._end(waiting)
        return self.phase

    def next_timer_ms(self) -> int | None:
        """When `advance` wants to be called, in the time of `now_ms`."""
        return self._until_ms if self.phase == SENDING else None

    def _is_due(self, is_filling: bool) -> bool:
        needed = 1 if is_filling else self._connect_every
        return self.samples >= needed * min(1 << self.failures, BACKOFF_MAX)

    def _end(self, waiting: int) -> None:
        self.phase = ASLEEP
        if not waiting:
            self.samples = self.failures = 0
        elif waiting < self._waiting:  # some were sent: go on at the next waking
            self.samples, self.failures = self._connect_every, 0
        else:
            self.samples = 0
            self.failures = min(self.failures + 1, BACKOFF_MAX)


def is_filling(waiting: int, message_bytes: int, sector_count: int) -> bool:
    """Returns whether `waiting` messages of `message_bytes` each take more than three quarters of the store.

    The number of free sectors does not show that: the store erases sent messages as late as it can.
    """
    return 4 * waiting * (message_bytes + RECORD_BYTES) > 3 * SECTOR_BYTES * max(1, sector_count - RESERVED)


def sleep_ms(due_ms: int, now_ms: int) -> int:
    """Returns how long to sleep until the next sample is due."""
    return max(SHORTEST_SLEEP_MS, due_ms - now_ms)


class Slept:
    """What the device keeps through a sleep: `boot_id`, the `uptime_ms` at its end, the clock's `anchor` or None,
    `samples` and `failures` of Duty, and the encoded `bands` of DeadBand."""

    def __init__(self, boot_id: int, uptime_ms: int, anchor, samples: int, failures: int, bands: bytes) -> None:
        self.boot_id = boot_id
        self.uptime_ms = uptime_ms
        self.anchor = anchor
        self.samples = samples
        self.failures = failures
        self.bands = bands


def encode_slept(slept: Slept) -> bytes:
    """Encodes what to keep: at most 2048 bytes, the size of an ESP32's RTC memory."""
    anchor = slept.anchor or NO_ANCHOR
    moment = (slept.boot_id, slept.uptime_ms, slept.anchor is not None)
    kept = struct.pack(HEAD, MAGIC, *moment, *anchor, min(slept.samples, 0xFFFF), slept.failures) + slept.bands
    return kept + struct.pack("<I", binascii.crc32(kept))


def decode_slept(content: bytes) -> Slept | None:
    """Decodes what was kept; None if it is missing or damaged."""
    size = struct.calcsize(HEAD)
    if len(content) < size + 4 or struct.unpack("<I", content[-4:])[0] != binascii.crc32(content[:-4]):
        return None
    magic, boot_id, uptime_ms, has_anchor, *others = struct.unpack(HEAD, content[:size])
    if magic != MAGIC:
        return None
    anchor = tuple(others[:3]) if has_anchor else None
    return Slept(boot_id, uptime_ms, anchor, others[3], others[4], bytes(content[size:-4]))


class Sleeper(Device):
    """A device that sleeps between its samples; an object lives for one time awake."""

    def __init__(self, config, board, on_message=None, watchdog=None) -> None:
        if board.deep_sleep is None:
            raise ConfigError(f"duty is an object, expected none: {board.NAME} keeps nothing through a sleep")
        slept = decode_slept(board.recall()) if board.reset_cause() == "deep sleep" else None
        known = (slept.samples, slept.failures) if slept else ()
        self._duty = Duty(config.duty.connect_every, config.duty.awake_ms, *known)
        self._attached_ms: int | None = None
        super().__init__(config, board, on_message, watchdog, slept)
        if slept:
            self.sampler.decode_bands(slept.bands)
            if slept.anchor:
                self.clock.resume(slept.anchor, slept.uptime_ms, self.sampler.interval_ms)

    def _turn(self, now_ms: int) -> None:
        if self._is_on_trial:  # it stays awake, as nothing would take it back while it sleeps
            super()._turn(now_ms)
            return
        if self._next_phase(now_ms) == SENDING:
            super()._turn(now_ms)
        if self._next_phase(now_ms) == ASLEEP and not self.wants_restart:
            self._sleep()

    def _timers_ms(self, now_ms: int) -> list:
        timers_ms = [self._duty.next_timer_ms(), self.sampler.next_timer_ms()]
        if self._attached_ms is not None:
            timers_ms.append(max(now_ms, self._attached_ms + LISTEN_MS))
        if self._duty.phase == SENDING or self._is_on_trial:
            timers_ms += super()._timers_ms(now_ms)
        return timers_ms

    @property
    def _is_on_trial(self) -> bool:
        return self.field is not None and self.field.is_on_trial

    def _next_phase(self, now_ms: int) -> str:
        waiting = len(self.log) + self._is_listening(now_ms)
        repeats = bool(getattr(self.log, "again", 0))
        return self._duty.advance(now_ms, self.sampler.has_sampled, waiting, self._is_filling(), repeats)

    def _is_filling(self) -> bool:
        message_bytes, sector_count = self.sampler.message_bytes, self.config.sector_count
        return not self.sampler.has_room or is_filling(len(self.log), message_bytes, sector_count)

    def _is_listening(self, now_ms: int) -> bool:
        if self.config.commands is None:
            return False
        assert self._session is not None
        if self._attached_ms is None and self._session.attached:
            self._attached_ms = now_ms
        return self._attached_ms is None or now_ms < self._attached_ms + LISTEN_MS

    def _sleep(self) -> None:
        self.close(has_time=True)
        now_ms = self.uptime.now_ms()
        due_ms = self.sampler.next_timer_ms()
        pause_ms = sleep_ms(now_ms + self.sampler.interval_ms if due_ms is None else due_ms, now_ms)
        clock, duty = self.clock, self._duty
        bands = self.sampler.encode_bands()
        slept = Slept(clock.boot_id, now_ms + pause_ms, clock.anchor, duty.samples, duty.failures, bands)
        self.has_ended = True
        self.board.deep_sleep(pause_ms, encode_slept(slept))
