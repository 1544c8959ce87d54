"""Messages of simulated devices, as a gateway would store them: the firmware encodes the payloads."""

import random
from typing import NamedTuple

from device.mqtt.publisher import SENML_CBOR, SENML_JSON
from device.readings import senml, senml_cbor
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.properties import CONTENT_TYPE, USER_PROPERTY

FORMATS = {"JSON": (senml.encode_pack, SENML_JSON), "CBOR": (senml_cbor.encode_pack, SENML_CBOR)}
INTERVAL_MS = 10_000
START_MS = 1_760_000_000_000
JITTER_MS = (0, 0, 0, 0, 1)
# name, unit, first value, and how much it changes from one sample to the next (standard deviation)
BME280 = (("temperature", "Cel", 21.0, 0.05), ("humidity", "%RH", 55.0, 0.1), ("pressure", "hPa", 1013.0, 0.02))
DS18B20 = BME280[:1]
Sensor = tuple[tuple[str, str, float, float], ...]


class Sent(NamedTuple):
    """A message of a device, and when the gateway accepted it (Unix time, ms)."""

    topic: str
    payload: bytes
    content_type: str
    origin: str
    epoch: int
    seq: int
    received_ms: int

    @property
    def properties(self) -> dict[int, object]:
        """The properties of the PUBLISH that the device sends."""
        identity = encode_identity(self.origin, self.epoch, self.seq)
        return {CONTENT_TYPE: self.content_type, USER_PROPERTY: [(IDENTITY_PROPERTY, identity)]}


class _Device:
    def __init__(self, number: int, sensor: Sensor, dice: random.Random) -> None:
        self.name = f"greenhouse-{number:02d}"
        self.epoch = dice.getrandbits(32)
        self.seq = dice.randint(1, 90_000)
        self.phase_ms = dice.randrange(INTERVAL_MS)
        self._boot = dice.randint(1, 40)
        self._up_ms = dice.randint(10_000, 9_000_000)
        self._sensor = sensor
        self._values = [first + dice.gauss(0, 3) for _, _, first, _ in sensor]
        self._dice = dice

    def sample(self, moment: int, content_format: str) -> Sent:
        encode_pack, content_type = FORMATS[content_format]
        dice = self._dice
        changes = [change for *_, change in self._sensor]
        self._values = [value + dice.gauss(0, change) for value, change in zip(self._values, changes, strict=True)]
        samples = [
            (name, unit, round(value, 2)) for (name, unit, *_), value in zip(self._sensor, self._values, strict=True)
        ]
        late_ms = moment * INTERVAL_MS + dice.choice(JITTER_MS)
        unix_ms = START_MS + self.phase_ms + late_ms
        self.seq += 1
        payload = encode_pack(self.name, samples, self._boot, self._up_ms + late_ms, unix_ms)
        received_ms = unix_ms + dice.randint(5, 60)
        return Sent(f"telemetry/{self.name}", payload, content_type, self.name, self.epoch, self.seq, received_ms)


def sent_by_fleet(messages: int, devices: int, sensor: Sensor, content_format: str, seed: int) -> list[Sent]:
    """Returns the messages of devices that sample a sensor every INTERVAL_MS, in the order in which they came."""
    dice = random.Random(seed)
    fleet = sorted((_Device(number, sensor, dice) for number in range(devices)), key=lambda device: device.phase_ms)
    moments = -(-messages // devices)
    return [device.sample(moment, content_format) for moment in range(moments) for device in fleet][:messages]
