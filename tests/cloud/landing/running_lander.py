"""A lander in a thread of the test, a publisher for it, and the rows it landed."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.request import urlopen

import pyarrow.parquet as pq
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from cloud import land
from cloud.landing import manifest

DEADLINE_S = 60.0
"""Longer than the longest pause of a lander between two attempts, which is half a minute."""


class RunningLander:
    """`land` until `stop`. `lines` has the text of its events, `raised` the error that ended it."""

    def __init__(self, port: int, landing: Path | str, name: str, **options: Any) -> None:
        self.name = name
        self.lines: list[str] = []
        self.raised: Exception | None = None
        self._stop = Event()
        options = {"landing": landing, "broker": f"mqtt://127.0.0.1:{port}", "group": name, "roll_s": 0.1, **options}
        self._thread = Thread(target=self._run, args=(options,), daemon=True)
        self._thread.start()

    def _run(self, options: dict[str, Any]) -> None:
        try:
            land(stop=self._stop, name=self.name, say=self.lines.append, **options)
        except Exception as error:
            self.raised = error

    def wait_for(self, text: str, times: int = 1) -> None:
        wait_until(lambda: sum(text in line for line in self.lines) >= times, f"{text!r} in {self.lines}")

    def wait_for_held(self, messages: int) -> None:
        """Returns when it holds ``messages`` messages; it has to have a port for metrics."""
        port = next(line for line in self.lines if "/metrics" in line).split()[-1]
        wanted = f"holdfast_lander_held_messages {messages}.0"

        def holds() -> bool:
            return wanted in urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()

        wait_until(holds, wanted)

    def stop(self) -> None:
        self._stop.set()
        self.ended()

    def ended(self) -> None:
        """Returns when `land` has ended."""
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), self.lines


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.01)


def landed(landing: Path) -> list[dict[str, Any]]:
    """Returns the rows of all complete landing files in the order of their landing."""
    manifests = sorted(map(manifest.read_manifest, landing.glob("[!.]*.json")), key=lambda one: one.number)
    for described in manifests:
        manifest.check_file(described, landing)
    return [row for described in manifests for row in pq.read_table(landing / described.file).to_pylist()]


def publish(port: int, topic: str, payloads: Sequence[bytes], qos: int = 1, hf_id: str = "", **properties: Any) -> None:
    """Publishes, and waits for all acknowledgements. `hf_id` is a format with {} for the number, from 1."""
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.max_inflight_messages_set(1000)
    client.connect("127.0.0.1", port)
    client.loop_start()
    sent = []
    for number, payload in enumerate(payloads, start=1):
        packed = Properties(PacketTypes.PUBLISH)
        if hf_id:
            packed.UserProperty = ("hf-id", hf_id.format(number))
        for name, value in properties.items():
            setattr(packed, name, value)
        sent.append(client.publish(topic, payload, qos, properties=packed))
    for info in sent:
        info.wait_for_publish(DEADLINE_S)
    client.disconnect()
    client.loop_stop()
