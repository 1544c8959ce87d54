"""Which device a message is about, by its topic, where its payload does not tell."""

from typing import Any, NamedTuple

SEPARATOR = "."
"""Stands between the parts of a metric's name: levels of a topic, keys of nested objects, places in arrays."""


_COMMANDS = ("set", "get", "command", "cmd")  # the last level of topics with what a device is told or asked


class Place(NamedTuple):
    """The device, and the metric of the whole payload ("" when the topic names none).

    by_key: whether the keys of the outermost object are devices.
    """

    device: str | None
    metric: str
    by_key: bool = False

    def metric_of(self, *path: str) -> str:
        """Returns the metric of a part of the payload."""
        return SEPARATOR.join((self.metric, *path) if self.metric else path)


def place_of_fields(topic: str) -> Place:
    """Returns the place of a payload with many values, by its topic."""
    return known_place(topic) or plain_place(topic)


def plain_place(topic: str) -> Place:
    """Returns the place by a topic of no known kind: the whole topic is the device, and the fields are metrics."""
    device, _, last = topic.rpartition("/")
    return Place(device, last) if device and last in _COMMANDS else Place(topic or None, "")


def place_of_value(topic: str) -> Place:
    """Returns the place of a payload that is one value: the last level of the topic is the metric."""
    if known := known_place(topic):
        return known if known.metric else Place(known.device, "value")
    device, _, metric = topic.rpartition("/")
    return Place(device or None, metric or "value")


def known_place(topic: str, value: Any = None) -> Place | None:
    """Returns the place by the topics of widespread software, as its documentation describes them; None for others.

    value: the payload, if it is JSON. A few topics are the same for all devices.
    """
    fields = value if isinstance(value, dict) else {}
    match topic.split("/"):
        case ["shellies", "announce"] if isinstance(fields.get("id"), str) and fields["id"]:
            return Place(fields["id"], "announce")
        case ["tele" | "stat" | "shellies", device, *rest] if device:  # Tasmota; Shelly's first generation
            return Place(device, SEPARATOR.join(rest))
        case ["cmnd", device, *rest] if device:  # what Tasmota's devices are told
            return Place(device, SEPARATOR.join(("cmnd", *rest)))
        case [device, *rest] if device.startswith("shelly") and rest:  # Shelly from the second generation on
            return Place(device, SEPARATOR.join(rest))
        case ["zigbee2mqtt", *name, "availability"] if any(name):
            return Place("/".join(name), "availability")
        case ["zigbee2mqtt", *name, ("set" | "get") as command] if any(name):
            return Place("/".join(name), command)
        case ["zigbee2mqtt", *name, ("set" | "get") as command, attribute] if any(name):
            return Place("/".join(name), SEPARATOR.join((command, attribute)))
        case ["zigbee2mqtt", *name] if any(name):  # a name may have several levels
            return Place("/".join(name), "")
        case ["v3", application, "devices", device, *rest] if application and device:  # The Things Stack
            return Place(f"{application}/{device}", SEPARATOR.join(rest))
        case ["v1", "devices", "me", *rest] if rest:  # ThingsBoard: the same topic for each device, so the origin is it
            return Place(None, "")
        case ["v1", "gateway", "telemetry" | "attributes"] if fields:
            return Place(None, "", by_key=True)
        case ["msh", *_] if type(fields.get("from")) is int:  # Meshtastic: the topic names the node that passed it on
            return Place(f"!{fields['from']:08x}", "")
    return None
