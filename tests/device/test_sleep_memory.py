"""What a deep sleep keeps, and what a power cut leaves of it."""

import random
import subprocess

import pytest

from device.readings import DeadBand
from device.sleeper import Slept, decode_slept, encode_slept
from tools.lab.micropython import MicroPython

ANCHOR = (1020, 1_780_000_000_000, 20)


@pytest.mark.parametrize("anchor", [None, ANCHOR])
def test_everything_is_there_again_after_the_sleep(anchor: tuple[int, int, int] | None) -> None:
    slept = decode_slept(encode_slept(Slept(7, 1 << 40, anchor, 11, 3, b"bands")))
    assert slept is not None
    assert vars(slept) == vars(Slept(7, 1 << 40, anchor, 11, 3, b"bands"))


def test_memory_that_lost_its_power_is_nothing(seed: int) -> None:
    chance = random.Random(seed)
    kept = encode_slept(Slept(7, 600_000, ANCHOR, 1, 0, bytes(160)))
    for lost in (b"", bytes(len(kept)), b"\xff" * len(kept)):
        assert decode_slept(lost) is None
    for length in range(len(kept)):
        assert decode_slept(kept[:length]) is None
    for _ in range(1000):
        damaged = bytearray(kept)
        damaged[chance.randrange(len(kept))] ^= 1 << chance.randrange(8)
        assert decode_slept(bytes(damaged)) is None


def test_a_real_micropython_keeps_the_same_bytes(micropython: MicroPython) -> None:
    program = f"""
import binascii
from device.readings import DeadBand
from device.sleeper import Slept, decode_slept, encode_slept
band = DeadBand({{"a": (1, 1), "a.error": (0, 1)}}, 1)
band.note([("a", None, 1.5), ("a.error", None, "no answer")], 1 << 40)
kept = encode_slept(Slept(7, 1 << 40, {ANCHOR}, 11, 3, band.encode()))
again = decode_slept(kept)
print(binascii.hexlify(kept).decode(), again.uptime_ms == 1 << 40 and again.anchor == {ANCHOR})
"""
    done = subprocess.run(
        [*micropython.argv, "-c", program], env=micropython.environment(), capture_output=True, text=True, timeout=60
    )
    band = DeadBand({"a": (1, 1), "a.error": (0, 1)}, 1)
    band.note([("a", None, 1.5), ("a.error", None, "no answer")], 1 << 40)
    assert done.stdout.split() == [encode_slept(Slept(7, 1 << 40, ANCHOR, 11, 3, band.encode())).hex(), "True"], (
        done.stderr
    )


def test_most_sensors_with_thresholds_fit_into_the_memory_of_an_esp32() -> None:
    bands = {f"sensor-{number}.{metric}": (1, 1) for number in range(12) for metric in ("a", "b", "c", "error")}
    band = DeadBand(bands, 1)
    band.note([(name, None, 1.5) for name in bands], 1)
    assert len(encode_slept(Slept(7, 1, ANCHOR, 1, 0, band.encode()))) <= 2048
