"""The document by which Home Assistant knows a device: its device-based MQTT discovery.

https://www.home-assistant.io/integrations/mqtt/#device-discovery-payload

Nothing that a device sends becomes a part of a template: there is none in the document, as each value has a topic of
its own with the plain value.
"""

import hashlib
from typing import Any, NamedTuple

import msgspec

from host.readings import Value

DISCOVERY_TOPIC = "homeassistant/device/{}/config"
STATE_TOPIC = "$SYS/home-assistant/{}/{}"
"""The topic of a value. No client can publish below ``$SYS``, so a device cannot speak for another one."""
SHOWN_MAX = 64
ID_MAX = 64
# Of units of SenML (RFC 8428, section 12.1) what Home Assistant calls them, and its class of such values.
_UNITS = {
    "Cel": ("°C", "temperature"),
    "K": ("K", "temperature"),
    "%RH": ("%", "humidity"),
    "Pa": ("Pa", "pressure"),
    "V": ("V", "voltage"),
    "A": ("A", "current"),
    "W": ("W", "power"),
    "Hz": ("Hz", "frequency"),
    "lx": ("lx", "illuminance"),
}


class Component(NamedTuple):
    """A value of a device: its key in the document, its name and unit, and the type of its values."""

    key: str
    name: str
    unit: str
    kind: type[Value]


def id_of(name: str) -> str:
    """Returns a name as Home Assistant takes it in a topic: letters, digits and `_` with two hexadecimal digits for
    each other byte; for a long name `_h` and its hash. No two names have the same."""
    coded = "".join(chr(one) if chr(one).isascii() and chr(one).isalnum() else f"_{one:02x}" for one in name.encode())
    return coded if len(coded) <= ID_MAX else "_h" + hashlib.sha256(name.encode()).hexdigest()[:32]


def key_of(topic: str, name: str, kind: type[Value]) -> str:
    """Returns the key of a value, which is the same after every start. Values of two types have two."""
    return "v" + hashlib.sha256(f"{topic}\0{name}\0{kind.__name__}".encode()).hexdigest()[:32]


def document(device_id: str, shown: str, components: list[Component], version: str, expire_after_s: int) -> bytes:
    """Returns the payload of DISCOVERY_TOPIC.

    Args:
        device_id: of the gateway and the device.
        shown: the device's name.
        components: its values.
        version: the gateway's.
        expire_after_s: after how many seconds without a new value Home Assistant calls the old one unavailable.
    """
    return msgspec.json.encode(
        {
            "device": {"identifiers": [f"holdfast-{device_id}"], "name": readable(shown)},
            "origin": {"name": "Holdfast", "sw_version": version},
            "components": {one.key: _component(device_id, one, expire_after_s) for one in components},
        }
    )


def _component(device_id: str, one: Component, expire_after_s: int) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "platform": "binary_sensor" if one.kind is bool else "sensor",
        "name": readable(one.name),
        "unique_id": f"holdfast-{device_id}-{one.key}",
        "state_topic": STATE_TOPIC.format(device_id, one.key),
        "expire_after": expire_after_s,
    }
    if one.kind is float:
        fields["state_class"] = "measurement"
        unit, device_class = _UNITS.get(one.unit, (readable(one.unit), ""))
        fields |= {"unit_of_measurement": unit} if unit else {}
        fields |= {"device_class": device_class} if device_class else {}
    return fields


def readable(name: str) -> str:
    """Returns a name without characters that cannot be shown, cut to SHOWN_MAX."""
    return "".join(one if one.isprintable() else "?" for one in name[:SHOWN_MAX])
