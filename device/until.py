"""Keeping messages until a receipt: what the configuration has to say, and the parts that do it.

Only a device whose configuration has the key loads this module. So the names of these parts take no heap of others.
"""

from device.mqtt.receipts import TOPIC, KeepingPublisher, KeepingSession, topic_of
from flash_store.kept import KeepingLog
from wire.codec import MQTT_5
from wire.topics import matches, parse_shared

UNTIL = ("acknowledgement", "receipt")


class KeepingParts:
    """The parts of a device that keeps messages until a receipt."""

    Log = KeepingLog
    Publisher = KeepingPublisher
    Session = KeepingSession


def read(section, config) -> None:
    """Reads the key. Raises ConfigError."""
    if section.choice("until", UNTIL) == UNTIL[0]:
        return
    if config.protocol_level != MQTT_5 or not config.qos:
        raise section.wrong("until", UNTIL[1], f'"{UNTIL[0]}" with mqtt_version 3.1.1 or qos 0')
    for own in (TOPIC, topic_of(config.client_id)):
        if config.commands is not None and matches(parse_shared(config.commands)[1], own):
            raise section.wrong("commands", config.commands, f"a filter that does not take its own {own}")
    config.until = KeepingParts
