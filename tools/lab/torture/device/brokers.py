"""The brokers of the tortured devices, and the messages that they keep for a subscriber at the end."""

import asyncio
import queue
import threading
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tools.lab.demo.site import holdfast
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.process import Process, free_port
from wire.identity import IDENTITY_PROPERTY, RECEIVE, WISH_PROPERTY

READER, ALL, END = "reader", "torture/#", "torture/end"
FOR_EVER_S = 0xFFFF_FFFF
SILENCE_S = 30.0


class MosquittoBroker:
    """A mosquitto that is stopped cleanly: it acknowledges before it writes."""

    def __init__(self, folder: Path) -> None:
        self._mosquitto = Mosquitto(folder)
        self.port = self._mosquitto.port

    async def start(self) -> None:
        self._mosquitto.start()

    async def interrupt(self) -> None:
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        await asyncio.to_thread(self._mosquitto.stop)


class GatewayBroker:
    """Our gateway, which is killed: it has stored all that it acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        config = folder / "gateway.toml"
        config.write_text(
            f'name = "gateway"\n[store]\npath = "store"\n[[listener]]\nkind = "tcp"\nport = {self.port}\n'
        )
        self._process = Process("gateway", holdfast("gateway", "run", "--config", str(config)), folder / "gateway.log")

    async def start(self) -> None:
        self._process.start()
        await asyncio.to_thread(self._process.says, "ready")

    async def interrupt(self) -> None:
        self._process.kill()
        await self.start()

    async def stop(self) -> None:
        await asyncio.to_thread(self._process.stop)


BROKERS: dict[str, type[MosquittoBroker] | type[GatewayBroker]] = {
    "mosquitto": MosquittoBroker,
    "gateway": GatewayBroker,
}


class Reader:
    """A subscriber whose session gathers everything while it is away."""

    def __init__(self, port: int, qos: int) -> None:
        self._port = port
        self._qos = qos
        self._came: queue.Queue[MQTTMessage | None] = queue.Queue()

    def subscribe(self) -> None:
        """Leaves a session that the broker fills."""
        client = self._connect()
        client.on_subscribe = lambda *_: self._came.put(None)
        client.subscribe(ALL, options=SubscribeOptions(self._qos))
        self._came.get(timeout=SILENCE_S)
        _leave(client)

    def read(self) -> list[tuple[str, bytes]]:
        """The identities and payloads of all that the broker holds, in its order."""
        came: list[tuple[str, bytes]] = []
        client = self._connect()
        while part := self._read_to_end(client):  # mosquitto lets a new message overtake those that wait
            came += part
        _leave(client)
        return came

    def _read_to_end(self, client: Client) -> list[tuple[str, bytes]]:
        """What comes before a message of our own of the same QoS; those of another overtake it."""
        came: list[tuple[str, bytes]] = []
        client.publish(END, qos=self._qos)
        while (message := self._came.get(timeout=SILENCE_S)) is not None and message.topic != END:
            properties: Any = message.properties
            came.append((dict(properties.UserProperty)[IDENTITY_PROPERTY], bytes(message.payload)))
        return came

    def _connect(self) -> Client:
        client = Client(CallbackAPIVersion.VERSION2, READER, protocol=MQTTProtocolVersion.MQTTv5)
        client.on_message = lambda _client, _userdata, message: self._came.put(message)
        properties = _for_ever()
        properties.UserProperty = (WISH_PROPERTY, RECEIVE)
        client.connect("127.0.0.1", self._port, clean_start=False, properties=properties)
        client.loop_start()
        return client


class Commander:
    """Sends numbered commands at QoS 2 to topics, each until the broker has it, whatever becomes of the broker."""

    def __init__(self, port: int) -> None:
        self._sent = 0
        self._taken = threading.Semaphore(0)
        self._client = Client(CallbackAPIVersion.VERSION2, "commander", protocol=MQTTProtocolVersion.MQTTv5)
        self._client.on_publish = lambda *_: self._taken.release()
        self._client.reconnect_delay_set(0.1, 1)  # type: ignore[arg-type]
        self._client.connect("127.0.0.1", port, clean_start=False, properties=_for_ever())
        self._client.loop_start()

    def send(self, topic: str) -> str:
        """Returns the command's payload, which is unique."""
        self._sent += 1
        self._client.publish(topic, f"{topic} {self._sent}", qos=2)
        return f"{topic} {self._sent}"

    def close(self) -> None:
        """Returns when the broker has all of them. Raises TimeoutError where it does not take them."""
        for _ in range(self._sent):
            if not self._taken.acquire(timeout=SILENCE_S):
                raise TimeoutError(f"the broker takes no command within {SILENCE_S:g} s")
        _leave(self._client)


def _for_ever() -> Properties:
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = FOR_EVER_S
    return properties


def _leave(client: Client) -> None:
    client.disconnect()
    client.loop_stop()
