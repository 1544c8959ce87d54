"""Packs as RFC 8428 wants them."""

import json

from device.readings.senml import encode_pack

SAMPLES = [("load", "/", 0.31), ("memory_available", "B", 2**53)]


def test_first_record_carries_what_holds_for_all() -> None:
    pack = json.loads(encode_pack("garage-1", SAMPLES, 3, 1500, 1758000000125))
    assert pack == [
        {"bn": "garage-1:", "bt": 1758000000.125, "boot": 3, "up": 1500, "n": "load", "u": "/", "v": 0.31},
        {"n": "memory_available", "u": "B", "v": 2**53},
    ]


def test_unknown_time_is_left_out() -> None:
    first = json.loads(encode_pack("garage-1", SAMPLES[:1], 3, 1500, None))[0]
    assert set(first) == {"bn", "boot", "up", "n", "u", "v"}
