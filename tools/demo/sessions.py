"""Leaving nothing behind on a broker that belongs to somebody else."""

import contextlib
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion


def end_session(host: str, port: int, client_id: str) -> None:
    """Ends a session on a broker: a clean start with no expiry, and goodbye [MQTT-3.1.2-4, MQTT-3.1.2-23]."""
    client = Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTProtocolVersion.MQTTv5)

    def say_goodbye(*_: Any) -> None:
        client.disconnect()

    client.on_connect = say_goodbye
    with contextlib.suppress(OSError):  # a broker that is gone has forgotten it, or will
        client.connect(host, port, clean_start=True)
        client.loop_forever()
