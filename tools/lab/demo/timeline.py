"""The numbers of readings made, forwarded and landed at each moment of a run, and the outages."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tools.lab.testing.process import ProcessFailed
from wire.bulk.column_batch import CONTENT_TYPE, decode_batch
from wire.errors import WireError

SAMPLE_EVERY_S = 0.2
SUBSCRIBE_TIMEOUT_S = 10.0


class Sample(NamedTuple):
    """The numbers of readings so far, `at_s` seconds after the first sample."""

    at_s: float
    made: int
    forwarded: int
    landed: int


class Outage(NamedTuple):
    """An outage: its name, its start and its end in seconds after the first sample."""

    name: str
    from_s: float
    until_s: float


class Timeline:
    """Takes samples from ``open`` to ``close``. ``count`` returns how many readings the devices have made, and how many
    have landed. A subscription at ``broker`` counts the forwarded readings."""

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
        """Subscribes at the central broker and begins to take samples. Raises ProcessFailed if it cannot subscribe."""
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
        """Takes the last sample, and disconnects from the broker."""
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.wait([self._sampling])
            self._sample()
        self._client.disconnect()
        self._client.loop_stop()

    def note_outage(self, name: str, from_s: float, until_s: float) -> None:
        """Adds an outage; its times are from the running loop's clock."""
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
        """Subscribes without a session and at QoS 0, so that the broker keeps nothing for it."""
        client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)

        def subscribe(*_: Any) -> None:
            client.subscribe(self._filter)

        def note(*_: Any) -> None:
            self._subscribed.set()

        client.on_connect, client.on_subscribe, client.on_message = subscribe, note, self._hear
        return client

    def _hear(self, _client: Client, _userdata: Any, message: MQTTMessage) -> None:
        """Counts the readings of a message or a column batch.

        A message that comes again has the same payload and counts once.
        """
        try:
            if getattr(message.properties, "ContentType", "") == CONTENT_TYPE:
                payloads = [one.payload for one in decode_batch(bytes(message.payload)).messages()]
            else:
                payloads = [bytes(message.payload)]
            for payload in payloads:
                self._heard[payload] = len(json.loads(payload))
        except (ValueError, TypeError, WireError):
            return  # another client's message
