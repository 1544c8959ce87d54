"""A subscriber by paho that remembers what it got."""

import queue
from collections.abc import Iterator
from contextlib import contextmanager

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

START_DEADLINE_S = 10.0


@contextmanager
def subscriber(port: int, topic_filter: str = "#", qos: int = 1) -> Iterator["queue.Queue[MQTTMessage]"]:
    """A subscribed paho client; yields the queue of what it receives."""
    received: queue.Queue[MQTTMessage] = queue.Queue()
    subscribed: queue.Queue[int] = queue.Queue()
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.on_message = lambda _client, _userdata, message: received.put(message)
    client.on_subscribe = lambda _client, _userdata, mid, _codes, _properties: subscribed.put(mid)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        client.subscribe(topic_filter, qos)
        subscribed.get(timeout=START_DEADLINE_S)
        yield received
    finally:
        client.disconnect()
        client.loop_stop()
