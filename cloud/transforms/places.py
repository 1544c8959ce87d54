"""Which device a message is about, by its topic, where its payload does not tell."""

from typing import NamedTuple

SEPARATOR = "."
"""Stands between the parts of a metric's name: levels of a topic, keys of nested objects, places in arrays."""


class Place(NamedTuple):
    """The device, and the metric of the whole payload ("" when the topic names none)."""

    device: str | None
    metric: str

    def metric_of(self, *path: str) -> str:
        """Returns the metric of a part of the payload."""
        return SEPARATOR.join((self.metric, *path) if self.metric else path)


def place_of_fields(topic: str) -> Place:
    """Returns the place of a payload with many values: the whole topic is the device, and the fields are metrics."""
    return _known(topic) or Place(topic or None, "")


def place_of_value(topic: str) -> Place:
    """Returns the place of a payload that is one value: the last level of the topic is the metric."""
    if known := _known(topic):
        return known if known.metric else Place(known.device, "value")
    device, _, metric = topic.rpartition("/")
    return Place(device or None, metric or "value")


def _known(topic: str) -> Place | None:
    """Returns the place by the topics of widespread software, as its documentation describes them."""
    match topic.split("/"):
        case ["tele" | "stat" | "shellies", device, *rest] if device:  # Tasmota; Shelly's first generation
            return Place(device, SEPARATOR.join(rest))
        case [device, *rest] if device.startswith("shelly") and rest:  # Shelly from the second generation on
            return Place(device, SEPARATOR.join(rest))
        case ["zigbee2mqtt", *name, "availability"] if any(name):
            return Place("/".join(name), "availability")
        case ["zigbee2mqtt", *name] if any(name):  # a name may have several levels
            return Place("/".join(name), "")
        case ["v3", application, "devices", device, *rest] if application and device:  # The Things Stack
            return Place(f"{application}/{device}", SEPARATOR.join(rest))
    return None
