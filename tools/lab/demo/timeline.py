"""How far the readings had come at each moment of a run: made, forwarded, landed; and when something was broken."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tools.demo.process import ProcessFailed

SAMPLE_EVERY_S = 0.2
SUBSCRIBE_TIMEOUT_S = 10.0


class Sample(NamedTuple):
    """Readings in all, `at_s` seconds after the first look."""

    at_s: float
    made: int
    forwarded: int
    landed: int


class Outage(NamedTuple):
    """What was broken, from when until when, in seconds after the first look."""

    name: str
    from_s: float
    until_s: float


class Timeline:
    """Takes samples from ``open`` to ``close``.

    Args:
        count: returns how many readings the devices have made, and how many have landed.
        broker: where the central broker listens.
        topic_filter: what the devices publish there.
    """

    def __init__(self, count: Callable[[], tuple[int, int]], broker: tuple[str, int], topic_filter: str) -> None:
        self.samples: list[Sample] = []
        self.outages: list[Outage] = []
        self._count = count
        self._broker = broker
        self._filter = topic_filter
        self._heard: dict[bytes, int] = {}
        self._started_s = 0.0
        self._subscribed = threading.Event()
        self._sampling: asyncio.Task[None] | None = None
        self._client = self._make_client()

    async def open(self) -> None:
        """Subscribes to the central broker and begins to take samples. Raises ProcessFailed where that cannot be."""
        try:
            self._client.connect(*self._broker, clean_start=True)
        except OSError as error:
            raise ProcessFailed(f"no central broker at {self._broker[0]}:{self._broker[1]}: {error}") from None
        self._client.loop_start()
        if not await asyncio.to_thread(self._subscribed.wait, SUBSCRIBE_TIMEOUT_S):
            raise ProcessFailed(f"the central broker lets no client subscribe to {self._filter}")
        self._started_s = asyncio.get_running_loop().time()
        self._sampling = asyncio.create_task(self._take_samples())

    async def close(self) -> None:
        """Takes the last sample, and leaves the broker."""
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.wait([self._sampling])
            self._sample()
        self._client.disconnect()
        self._client.loop_stop()

    def note_outage(self, name: str, from_s: float, until_s: float) -> None:
        """Times are those of the running loop."""
        self.outages.append(Outage(name, from_s - self._started_s, until_s - self._started_s))

    async def _take_samples(self) -> None:
        while True:
            self._sample()
            await asyncio.sleep(SAMPLE_EVERY_S)

    def _sample(self) -> None:
        made, landed = self._count()
        at_s = asyncio.get_running_loop().time() - self._started_s
        self.samples.append(Sample(at_s, made, sum(list(self._heard.values())), landed))

    def _make_client(self) -> Client:
        """It has no session and subscribes at QoS 0, so that nothing waits for it at a broker that others use too."""
        client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)

        def subscribe(*_: Any) -> None:
            client.subscribe(self._filter)

        def note(*_: Any) -> None:
            self._subscribed.set()

        client.on_connect, client.on_subscribe, client.on_message = subscribe, note, self._hear
        return client

    def _hear(self, _client: Client, _userdata: Any, message: MQTTMessage) -> None:
        """A message that the route repeats has the same payload and counts once."""
        try:
            self._heard[bytes(message.payload)] = len(json.loads(message.payload))
        except (ValueError, TypeError):
            return  # another client's message
