"""The clients of a run: publishers with paho, subscribers with libmosquitto, paho and MQTT.js."""

import sys
import threading
import time
from collections import Counter
from pathlib import Path

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from tools.lab.testing.process import Process

TOPIC = "torture"
RECONNECT_S = 1
WINDOW = 100  # messages that wait for their publisher; more would all be sent at once after each cut


class PahoPublisher:
    """Publishes numbered messages at QoS 2 with paho as it comes, over one durable session.

    Args:
        name: its client identifier.
        port: of the line to the gateway.
        count: how many messages.
    """

    def __init__(self, name: str, port: int, count: int) -> None:
        self.name = name
        self.count = count
        self._client = Client(CallbackAPIVersion.VERSION2, name, clean_session=False)
        self._client.reconnect_delay_set(RECONNECT_S, 2 * RECONNECT_S)
        self._port = port
        self._client.max_queued_messages_set(0)
        self._client.on_publish = lambda _client, _data, identifier, *_: self._completed.add(identifier)
        self._sent: list[int] = []  # packet identifiers
        self._completed: set[int] = set()

    def start(self) -> None:
        """Connects; raises OSError."""
        self._client.connect("127.0.0.1", self._port)
        self._client.loop_start()

    def publish(self, deadline: float) -> None:
        """Publishes until all have left; called on a thread of its own."""
        for number in range(1, self.count + 1):
            while self._waiting() >= WINDOW and time.monotonic() < deadline:
                time.sleep(0.01)
            self._sent.append(self._client.publish(f"{TOPIC}/{self.name}", f"{self.name} {number}", qos=2).mid)
            time.sleep(0.002)

    def _waiting(self) -> int:
        return len(self._sent) - len(self._completed)

    def completed(self) -> set[str]:
        """The payloads that paho says are published."""
        return {f"{self.name} {number}" for number, one in enumerate(self._sent, 1) if one in self._completed}

    @property
    def is_done(self) -> bool:
        return len(self._sent) == self.count and self._completed.issuperset(self._sent)

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class PahoSubscriber:
    """Counts what paho hands out."""

    def __init__(self, qos: int, port: int) -> None:
        self.name, self.qos = f"paho-{qos}", qos
        self.shown: Counter[str] = Counter()
        self._port = port
        self._subscribed = threading.Event()
        self._client = Client(CallbackAPIVersion.VERSION2, self.name, clean_session=False)
        self._client.reconnect_delay_set(RECONNECT_S, 2 * RECONNECT_S)
        self._client.on_message = lambda _client, _data, message: self.shown.update([message.payload.decode()])
        self._client.on_subscribe = lambda *_: self._subscribed.set()

    def start(self) -> None:
        self._client.connect("127.0.0.1", self._port)
        self._client.loop_start()
        while self._client.subscribe(f"{TOPIC}/#", self.qos)[0] != MQTTErrorCode.MQTT_ERR_SUCCESS:
            time.sleep(0.05)
        assert self._subscribed.wait(30)

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class ProcessSubscriber:
    """Counts what a program prints, a payload a line."""

    def __init__(self, name: str, qos: int, argv: list[str], folder: Path, ready: str) -> None:
        self.name, self.qos = f"{name}-{qos}", qos
        self._ready = ready
        self._process = Process(self.name, [sys.executable, "-c", RUN_IN, str(folder), *argv])

    def start(self) -> None:
        self._process.start()
        self._process.says(self._ready)

    @property
    def shown(self) -> Counter[str]:
        return Counter(self._process.lines)

    def stop(self) -> None:
        self._process.stop()


RUN_IN = "import os, sys; os.chdir(sys.argv[1]); os.execvp(sys.argv[2], sys.argv[2:])"
Subscriber = PahoSubscriber | ProcessSubscriber


def subscribers(port: int, folder: Path, packages: Path | None) -> list[Subscriber]:
    """All subscribers, one of each client at each QoS; those with MQTT.js only if its packages are there."""
    found: list[Subscriber] = []
    for qos in (0, 1, 2):
        found.append(PahoSubscriber(qos, port))
        argv = ["-p", str(port), "-i", f"mosquitto_sub-{qos}", "-c", "-q", str(qos), "-t", f"{TOPIC}/#", "-d"]
        # With -d it says when it is subscribed, and besides the payloads what it sends and receives.
        found.append(
            ProcessSubscriber("mosquitto_sub", qos, ["stdbuf", "-oL", "mosquitto_sub", *argv], folder, "Subscribed")
        )
        if packages is not None:
            script = str(Path(__file__).with_name("subscriber.js"))
            node = ["node", script, f"mqtt://127.0.0.1:{port}", f"mqtt_js-{qos}", str(qos)]
            found.append(ProcessSubscriber("mqtt_js", qos, node, packages, "subscribed"))
    return found
