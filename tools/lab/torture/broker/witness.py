"""Ordinary clients beside the storm: one publishes at QoS 1 and 2, another must receive each message once, in order."""

import asyncio
import time

from tools.lab.testing.client import Client, UnexpectedEvent
from tools.lab.testing.lines import Lines
from wire.codec.packets import MQTT_5, Disconnect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from wire.errors import Closed
from wire.reasons import UNSPECIFIED_ERROR

WITNESS = "witness-"  # the start of their client identifiers
WINDOW = 20  # messages on their way at once
KEEP_ALIVE_S = 60
LATE_S = 120.0
PAUSE_S = 0.25  # between two windows, because witnesses are not a load


class WitnessFailed(Exception):
    """An ordinary client saw a fault of the gateway; the text describes it."""


class OrdinaryClient(Client):
    """A client that keeps to the protocol, on a line of its own.

    Attributes:
        unanswered: how many of its messages have no last acknowledgement yet.
    """

    def __init__(self, client_id: str, level: int = MQTT_5) -> None:
        super().__init__(
            client_id, clean_start=True, session_expiry_s=0, keep_alive_s=KEEP_ALIVE_S, protocol_level=level
        )
        self.unanswered = 0
        self.deadline_s = LATE_S

    async def packet(self) -> Packet:
        """Returns the next packet for it. Raises WitnessFailed at the end of the connection."""
        try:
            event = await self.event()
        except OSError as error:  # TimeoutError is one
            raise WitnessFailed(f"its line failed: {error!r}") from error
        if event is None:
            raise WitnessFailed("its line was closed")
        if isinstance(event, (Closed, Disconnect)):
            raise WitnessFailed(f"{self.protocol.client_id} was disconnected: {event!r}")
        return event

    async def publish_all(self, topic: str, payloads: list[bytes], qos: int) -> None:
        """Publishes some messages and waits for the last acknowledgement of each."""
        open_flows = {self.protocol.publish(topic, payload, qos=qos) for payload in payloads}
        self.unanswered = len(open_flows)
        self.flush()
        while open_flows:
            packet = await self.packet()
            if isinstance(packet, (Puback, Pubrec)) and packet.reason_code >= UNSPECIFIED_ERROR:
                raise WitnessFailed(f"a message was refused: {packet!r}")
            if isinstance(packet, Pubrec):
                self.release(packet.packet_identifier)
            elif isinstance(packet, (Puback, Pubcomp)):
                open_flows.discard(packet.packet_identifier)
                self.unanswered = len(open_flows)

    async def next_payload(self) -> bytes:
        """Acknowledges the next message and returns its payload; a QoS 2 flow is completed by the next call."""
        while True:
            packet = await self.packet()
            if isinstance(packet, Pubrel):
                self.protocol.pubcomp(packet.packet_identifier)
                self.flush()
            elif isinstance(packet, Publish):
                self.acknowledge(packet)
                return bytes(packet.payload)


class Witness:
    """A publisher and a subscriber; their client identifiers and their topic contain `name`."""

    def __init__(self, name: str, qos: int, level: int = MQTT_5) -> None:
        self.messages = 0
        self.longest_s = 0.0  # from the first PUBLISH of a window to the last one received
        self._latest_s = time.monotonic()  # of a message received
        self._topic = f"witness/{name}"
        self._qos = qos
        self._publisher = OrdinaryClient(f"{WITNESS}{name}-from", level)
        self._subscriber = OrdinaryClient(f"{WITNESS}{name}-to", level)

    async def run(self, lines: Lines, kinds: tuple[str, str]) -> None:
        """Runs until it is cancelled. Raises WitnessFailed."""
        try:
            for client, kind in zip((self._publisher, self._subscriber), kinds, strict=True):
                await client.connect_over(await lines.open(kind))
            if (codes := await self._subscriber.subscribe(self._topic, options=2)) != [2]:
                raise WitnessFailed(f"the subscription was answered with {codes}")
            while True:
                await self._send_window()
                await asyncio.sleep(PAUSE_S)
        except (WitnessFailed, UnexpectedEvent) as failure:
            silent_s = time.monotonic() - self._latest_s
            unanswered = self._publisher.unanswered
            when = f"after {self.messages} messages, {silent_s:.0f} s after the last, {unanswered} unanswered"
            raise WitnessFailed(f"{self._topic}, {when}: {failure}") from failure
        finally:
            for client in (self._publisher, self._subscriber):
                client.cut()

    async def _send_window(self) -> None:
        started = time.monotonic()
        payloads = [b"%d" % number for number in range(self.messages, self.messages + WINDOW)]
        publishing = asyncio.create_task(self._publisher.publish_all(self._topic, payloads, self._qos))
        receiving = asyncio.create_task(self._receive_all(payloads))
        try:
            for either in asyncio.as_completed((publishing, receiving)):
                await either  # after a failure of one the other would wait forever
        finally:
            publishing.cancel()
            receiving.cancel()
        self.longest_s = max(self.longest_s, time.monotonic() - started)

    async def _receive_all(self, payloads: list[bytes]) -> None:
        for expected in payloads:
            received = await self._subscriber.next_payload()
            if received != expected:
                raise WitnessFailed(f"{received!r} came")
            self.messages += 1
            self._latest_s = time.monotonic()
