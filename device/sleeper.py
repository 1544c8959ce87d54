"""A device that sleeps between samples: the loop of `device.device` with the decisions of `device.duty`."""

from device.device import Device
from device.duty import ASLEEP, SENDING, Duty, sleep_ms
from device.errors import ConfigError
from device.sleep_memory import Slept, decode, encode

LISTEN_MS = 1_000  # after it has connected, for messages that wait for the device


class Sleeper(Device):
    """One time awake."""

    def __init__(self, config, board, on_message=None, watchdog=None) -> None:
        if board.deep_sleep is None:
            raise ConfigError(f"duty is an object, expected none: {board.NAME} keeps nothing through a sleep")
        slept = decode(board.recall()) if board.reset_cause() == "deep sleep" else None
        known = (slept.samples, slept.failures) if slept else ()
        self._duty = Duty(config.duty.connect_every, config.duty.awake_ms, *known)
        self._attached_ms: int | None = None
        super().__init__(config, board, on_message, watchdog, slept)
        if slept:
            self.sampler.decode_bands(slept.bands)
            if slept.anchor:
                self.clock.resume(slept.anchor, slept.uptime_ms, self.sampler.interval_ms)

    def _turn(self, now_ms: int) -> None:
        if self._next_phase(now_ms) == SENDING:
            super()._turn(now_ms)
        if self._next_phase(now_ms) == ASLEEP and not self.wants_restart:
            self._sleep()

    def _timers_ms(self, now_ms: int) -> list:
        timers_ms = [self._duty.next_timer_ms(), self.sampler.next_timer_ms()]
        if self._attached_ms is not None:
            timers_ms.append(max(now_ms, self._attached_ms + LISTEN_MS))
        if self._duty.phase == SENDING:
            timers_ms += super()._timers_ms(now_ms)
        return timers_ms

    def _next_phase(self, now_ms: int) -> str:
        waiting = len(self.log) + self._is_listening(now_ms)
        return self._duty.advance(now_ms, self.sampler.has_sampled, waiting, self.sampler.is_filling())

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
        self.board.deep_sleep(pause_ms, encode(slept))
