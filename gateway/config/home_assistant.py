"""The keys of the configuration file for Home Assistant. The reference page is made of it."""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from gateway.config.errors import Checked
from gateway.config.network import errors_in_filter


class HomeAssistantConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """Devices in [Home Assistant](../how-to/home-assistant.md), by its MQTT discovery: the newest values of devices
    that publish to this gateway, and of its connectors. The messages are those of the default stream."""

    topics: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("#",)
    """The topic filters of the messages with values."""

    expire_after_s: Annotated[int, msgspec.Meta(ge=1, le=604_800)] = 3600
    """After how many seconds without a new value Home Assistant shows a value as unavailable. Set it to more than the
    longest interval of a device."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for topic_filter in values.get("topics", ()):
            yield from errors_in_filter("topics", topic_filter)
            if topic_filter.startswith("$"):
                yield "topics", f"{topic_filter!r}: what begins with $ has no values of devices"
