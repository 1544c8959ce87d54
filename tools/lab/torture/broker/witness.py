"""Good clients beside the storm: what one publishes at QoS 1 and 2, another has once and in order."""

import asyncio
import time

from tools.torture.broker_lines import Line, Lines
from wire.client import ClientConnection
from wire.errors import Closed
from wire.packets import MQTT_5, Connack, Disconnect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback

WITNESS = "witness-"  # their client identifiers begin so
WINDOW = 20  # messages on their way at once
KEEP_ALIVE_S = 60
PAUSE_S = 0.25  # between two windows: they are witnesses, not a load
LATE_S = 120.0


class WitnessFailed(Exception):
    """Something that a good client should never see; the text says what."""


class Client:
    """One good client on a line of its own; ``open`` counts what it published and has no last answer yet."""

    def __init__(self, client_id: str, level: int) -> None:
        self._protocol = ClientConnection(
            client_id, clean_start=True, session_expiry_s=0, keep_alive_s=KEEP_ALIVE_S, protocol_level=level
        )
        self._line: Line
        self.open = 0

    async def connect(self, line: Line) -> None:
        self._line = line
        self._protocol.connect(_now_ms())
        await self.flush()
        connack = await self.event()
        if not isinstance(connack, Connack) or connack.reason_code:
            raise WitnessFailed(f"no CONNACK: {connack!r}")

    async def subscribe(self, topic: str) -> None:
        self._protocol.subscribe([(topic, 2)])
        await self.flush()
        if not isinstance(suback := await self.event(), Suback) or suback.reason_codes != [2]:
            raise WitnessFailed(f"no SUBACK: {suback!r}")

    async def event(self) -> Packet:
        """The next packet for it. Raises WitnessFailed at the end of the connection."""
        while (event := self._protocol.next_event()) is None:
            await self.flush()
            try:
                async with asyncio.timeout(LATE_S):
                    data = await self._line.read()
            except OSError as error:  # TimeoutError is one
                raise WitnessFailed(f"its line failed: {error!r}") from error
            if not data:
                raise WitnessFailed("its line was closed")
            self._protocol.receive_data(data, _now_ms())
        if isinstance(event, (Closed, Disconnect)):
            raise WitnessFailed(f"{self._protocol.client_id} was sent away: {event!r}")
        return event

    async def flush(self) -> None:
        await self._line.write(self._protocol.data_to_send())

    async def publish_all(self, topic: str, payloads: list[bytes], qos: int) -> None:
        """Publishes some messages to their last acknowledgement."""
        open_flows = {self._protocol.publish(topic, payload, qos=qos) for payload in payloads}
        self.open = len(open_flows)
        await self.flush()
        while open_flows:
            packet = await self.event()
            if isinstance(packet, (Puback, Pubrec)) and packet.reason_code >= 0x80:
                raise WitnessFailed(f"a message was refused: {packet!r}")
            if isinstance(packet, Pubrec):
                self._protocol.pubrel(packet.packet_identifier)
            elif isinstance(packet, (Puback, Pubcomp)):
                open_flows.discard(packet.packet_identifier)
                self.open = len(open_flows)

    async def receive(self) -> bytes:
        """The next message's payload, acknowledged; the rest of a QoS 2 flow goes on by itself."""
        while True:
            packet = await self.event()
            if isinstance(packet, Pubrel):
                self._protocol.pubcomp(packet.packet_identifier)
            elif isinstance(packet, Publish):
                assert packet.packet_identifier is not None
                answer = self._protocol.puback if packet.qos == 1 else self._protocol.pubrec
                answer(packet.packet_identifier)
                return bytes(packet.payload)

    def close(self) -> None:
        self._line.close()


class Witness:
    """A publisher and a subscriber.

    Args:
        name: of both, and of their topic.
        qos: of their messages.
        level: the protocol level of both.
    """

    def __init__(self, name: str, qos: int, level: int = MQTT_5) -> None:
        self.messages = 0
        self.longest_s = 0.0  # from the first PUBLISH of a window to the last one received
        self._latest_s = time.monotonic()  # of a message received
        self._topic = f"witness/{name}"
        self._qos = qos
        self._publisher = Client(f"{WITNESS}{name}-from", level)
        self._subscriber = Client(f"{WITNESS}{name}-to", level)

    async def run(self, lines: Lines, kinds: tuple[str, str]) -> None:
        """Goes on until it is cancelled. Raises WitnessFailed."""
        for client, kind in zip((self._publisher, self._subscriber), kinds, strict=True):
            await client.connect(await lines.open(kind))
        try:
            await self._subscriber.subscribe(self._topic)
            while True:
                await self._send_window()
                await asyncio.sleep(PAUSE_S)
        except WitnessFailed as failure:
            silent_s = time.monotonic() - self._latest_s
            when = f"after {self.messages} messages, {silent_s:.0f} s after the last, {self._publisher.open} unanswered"
            raise WitnessFailed(f"{self._topic}, {when}: {failure}") from failure
        finally:
            self._publisher.close()
            self._subscriber.close()

    async def _send_window(self) -> None:
        started = time.monotonic()
        payloads = [b"%d" % number for number in range(self.messages, self.messages + WINDOW)]
        publishing = asyncio.create_task(self._publisher.publish_all(self._topic, payloads, self._qos))
        receiving = asyncio.create_task(self._receive_all(payloads))
        try:
            for either in asyncio.as_completed((publishing, receiving)):
                await either  # where one fails the other would wait in vain
        finally:
            publishing.cancel()
            receiving.cancel()
        self.longest_s = max(self.longest_s, time.monotonic() - started)

    async def _receive_all(self, payloads: list[bytes]) -> None:
        for expected in payloads:
            received = await self._subscriber.receive()
            if received != expected:
                raise WitnessFailed(f"{received!r} came")
            self.messages += 1
            self._latest_s = time.monotonic()


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
