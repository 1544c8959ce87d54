"""Packs in both formats: what they cost, and that both VMs write the same."""

import json
import subprocess

import pytest

from device.mqtt.publisher import content_type
from device.readings import payload, senml, senml_cbor
from tools.lab.micropython import MicroPython

AIR = [
    ("bme280.temperature", "Cel", 21.53),
    ("bme280.humidity", "%RH", 48.7),
    ("bme280.pressure", "Pa", 100653.3),
    ("sht31.error", None, "OSError [Errno 19] ENODEV"),
    ("door", None, True),
    *(("n", "Cel", number) for number in (0, -1, 23, 24, -25, 255, 256, 65536, 2**32, 2**53, -(2**33), 1e-07, 1.5e20)),
    *(("n", "Cel", number) for number in (0.1, -0.0625, 1600.0, 1e300, -1.5e-9, 16777217.0, 0.0)),
]
PACK = ("greenhouse-1", AIR, 3, 86_400_000, 1_758_000_000_125)
PROGRAM = """
import binascii, json, sys
from device.readings.payload import encoder
client_id, samples, boot_id, uptime_ms, unix_ms = json.loads(sys.stdin.read())
for name in ("json", "cbor"):
    print(binascii.hexlify(encoder(name)(client_id, samples, boot_id, uptime_ms, unix_ms)).decode())
"""


def test_micropython_writes_the_same_packs(micropython: MicroPython) -> None:
    done = subprocess.run(
        [*micropython.argv, "-c", PROGRAM],
        env=micropython.environment(),
        input=json.dumps(PACK),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    in_json, in_cbor = (bytes.fromhex(line) for line in done.stdout.split())
    assert json.loads(in_json) == json.loads(senml.encode_pack(*PACK))
    assert in_cbor == senml_cbor.encode_pack(*PACK)


def test_cbor_takes_about_two_thirds_of_the_bytes_of_json() -> None:
    pack = ("greenhouse-1", AIR[:3], 3, 86_400_000, 1_758_000_000_125)
    in_json, in_cbor = len(senml.encode_pack(*pack)), len(senml_cbor.encode_pack(*pack))
    print(f"{in_json / 3:.0f} and {in_cbor / 3:.0f} bytes for each of three readings")
    assert in_cbor < 0.7 * in_json


@pytest.mark.parametrize("name", payload.FORMATS)
def test_pack_in_flash_tells_its_own_format(name: str) -> None:
    for count in (1, 23, 24, 200, 300):
        for unix_ms in (None, 1_780_000_000_000):
            pack = payload.encoder(name)("g", [("t", "Cel", 1)] * count, 1, 0, unix_ms)
            assert content_type(pack) == f"application/senml+{name}"


@pytest.mark.parametrize(
    "raw", [b"", b"21.5", b"[1, 2]", b"[", b"\x82\x01\x02", b"\x81\xa1\x61", b"\x98", b"{}", b"\xff"]
)
def test_payload_of_the_users_own_is_not_taken_for_senml(raw: bytes) -> None:
    assert content_type(raw) is None
