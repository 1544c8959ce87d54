"""The part of a simulated `machine` module about power, resets and time."""

import sys
import time

import _chip

RTC_BYTES = 2048
RP2_WDT_MS_MAX = 8_388
DEFAULT_ID = "246f28aabbcc"  # of a chip whose folder has no other


def reset_cause() -> int:
    """On an RP2 a `reset` is one by the watchdog (micropython/micropython#19409)."""
    cause = int(_chip.read("cause") or _chip.PWRON_RESET)
    return _chip.WDT_RESET if sys.platform == "rp2" and cause != _chip.PWRON_RESET else cause


class Registers:
    """`mem32` of an RP2040; only the watchdog's REASON is there: bit 0 if it ran out, bit 1 if it was triggered."""

    def __getitem__(self, address: int) -> int:
        assert address == 0x4005_8008, "no other register is simulated"
        return 1 if _chip.read("cause") == str(_chip.WDT_RESET) else 2


mem32 = Registers()


def reset() -> None:
    _chip.leave(_chip.RESETS)


def soft_reset() -> None:
    raise SystemExit


def bootloader(timeout_ms: int = 0) -> None:
    """Starts the loader in the chip's ROM, as the button at its boot pin does."""
    _chip.leave(_chip.LOADS)


def unique_id() -> bytes:
    return bytes.fromhex(_chip.read("unique_id") or DEFAULT_ID)


def freq() -> int:
    return 160_000_000


def deepsleep(sleep_ms: int = 0) -> None:
    """Ends the program; the board starts it again after this time."""
    _chip.write("sleep_ms", str(sleep_ms).encode())
    _chip.leave(_chip.SLEEPS)


class RTC:
    """The clock, and an ESP32's memory that keeps its content in deep sleep and over resets."""

    def datetime(self, when: tuple) -> None:
        _chip.write("rtc_time", repr(when).encode())

    def memory(self, content: bytes | None = None) -> bytes:
        if content is None:
            try:
                with _chip.HOST[0](f"{_chip.FOLDER}/rtc", "rb") as file:
                    return file.read()
            except OSError:
                return b""
        if len(content) > RTC_BYTES:
            raise ValueError("buffer too long")
        _chip.write("rtc", content)
        return content


class WDT:
    """A timer that ends the process unless the program feeds it in time. The program cannot stop it."""

    def __init__(self, id: int = 0, timeout: int = 5000) -> None:
        if sys.platform == "rp2" and timeout > RP2_WDT_MS_MAX:
            raise ValueError("timeout exceeds 8388")
        if timeout < 1:
            raise ValueError("WDT timeout too short")
        self._timeout_ms = timeout
        self.feed()

    def feed(self) -> None:
        seconds, rest_ms = divmod(self._timeout_ms, 1000)
        if sys.implementation.name == "micropython":
            import struct

            timer = struct.pack("llll", 0, 0, seconds, rest_ms * 1000)
            _chip.function("setitimer", "i", "iPP")(0, timer, None)
        else:
            import signal

            signal.setitimer(signal.ITIMER_REAL, self._timeout_ms / 1000)


class Timer:
    """An RP2's timer: its callback runs at its time even while the program waits, for example for a DNS answer."""

    def __init__(self, number: int, *, period: int, callback) -> None:
        import _thread

        self._period_ms, self._callback = period, callback
        self._is_on = True
        _thread.start_new_thread(self._run, ())

    def deinit(self) -> None:
        self._is_on = False

    def _run(self) -> None:
        while True:
            time.sleep(self._period_ms / 1000)
            if not self._is_on:
                return
            self._callback(self)
