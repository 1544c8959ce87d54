"""A real mosquitto for tests, and a subscriber that remembers what it got."""

import queue
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

START_DEADLINE_S = 10.0


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def mosquitto(folder: Path, port: int | None = None) -> Iterator[int]:
    """Runs mosquitto without limits on queues and windows; yields its port."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    assert program, "mosquitto is not installed (apt install mosquitto mosquitto-clients)"
    port = port or free_port()
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n"
    )
    with subprocess.Popen([program, "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as broker:
        try:
            wait_for_port(port)
            yield port
        finally:
            broker.terminate()


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
