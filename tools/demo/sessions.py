"""Leaving nothing behind on a broker that belongs to somebody else."""

from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion


def end_session(host: str, port: int, client_id: str) -> bool:
    """Ends a session on a broker: a clean start with no expiry, and goodbye [MQTT-3.1.2-4, MQTT-3.1.2-23].

    False where there is no broker: it has forgotten the session, or will.
    """
    client = Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTProtocolVersion.MQTTv5)

    def say_goodbye(*_: Any) -> None:
        client.disconnect()

    client.on_connect = say_goodbye
    try:
        client.connect(host, port, clean_start=True)
    except OSError:
        return False
    client.loop_forever()
    return True
