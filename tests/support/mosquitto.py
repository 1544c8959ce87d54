"""A real mosquitto for tests, and a subscriber that remembers what it got."""

import queue
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tools.lab.testing.mosquitto import Mosquitto

__all__ = ("mosquitto", "subscriber", "wait_for_port")

START_DEADLINE_S = 10.0


@contextmanager
def mosquitto(folder: Path, port: int | None = None) -> Iterator[int]:
    """Runs mosquitto without persistence and limits on queues and windows; yields its port."""
    broker = Mosquitto(folder, "max_inflight_messages 0", port, is_persistent=False)
    broker.start()
    try:
        yield broker.port
    finally:
        broker.stop()


def wait_for_port(port: int) -> None:
    """Returns when something accepts connections there."""
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"nothing listens on port {port}"


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
