"""A lander in a thread of the test, a publisher for it, and what it landed."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from cloud import manifest
from cloud.lander import Lander
from cloud.landing_folder import LandingFolder

DEADLINE_S = 20.0


class RunningLander:
    """Runs from its making until `stop`; `lines` is what it said."""

    def __init__(
        self, port: int, landing: Path, name: str, topic_filter: str = "#", roll_s: float = 0.1, group: str = ""
    ) -> None:
        self.lines: list[str] = []
        self.folder = LandingFolder(landing, name, boot=int.from_bytes(name.encode()[-4:]))
        broker = f"mqtt://127.0.0.1:{port}"
        self.lander = Lander(broker, self.folder, topic_filter, group or name, roll_s, self.lines.append)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.lander.run, args=(self._stop,), daemon=True)
        self._thread.start()

    def wait_for(self, text: str) -> None:
        wait_until(lambda: any(text in line for line in self.lines), f"{text!r} in {self.lines}")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        self.folder.close()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.01)


def landed(landing: Path) -> list[dict[str, Any]]:
    """The rows of all landing files that count, in the order of their landing."""
    manifests = sorted((manifest.read(path) for path in landing.glob("[!.]*.json")), key=lambda one: one.number)
    for described in manifests:
        manifest.check_file(described, landing)
    return [row for described in manifests for row in pq.read_table(landing / described.file).to_pylist()]


@contextmanager
def publisher(port: int) -> Iterator["Publisher"]:
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.max_inflight_messages_set(1000)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        yield Publisher(client)
    finally:
        client.disconnect()
        client.loop_stop()


class Publisher:
    def __init__(self, client: Client) -> None:
        self._client = client

    def publish(self, topic: str, payloads: Sequence[bytes], qos: int = 1, **properties: Any) -> None:
        """Returns when the broker has acknowledged them all. `hf_id` is a format with {} for the number, from 1."""
        identity = properties.pop("hf_id", None)
        sent = []
        for number, payload in enumerate(payloads, start=1):
            packed = Properties(PacketTypes.PUBLISH)
            if identity:
                packed.UserProperty = ("hf-id", identity.format(number))
            for name, value in properties.items():
                setattr(packed, name, value)
            sent.append(self._client.publish(topic, payload, qos, properties=packed))
        for info in sent:
            info.wait_for_publish(DEADLINE_S)
