"""The brokers of the tortured devices, and the messages that they keep for a subscriber at the end."""

import asyncio
import queue
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tools.lab.demo.site import holdfast
from tools.lab.testing.client import Client, UnexpectedEvent
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process
from wire.codec.packets import Pubcomp, Pubrec
from wire.identity import IDENTITY_PROPERTY, RECEIVE, WISH_PROPERTY

READER, ALL, END = "reader", "torture/#", "torture/end"
FOR_EVER_S = 0xFFFF_FFFF
RULES = "".join(
    f"allow {rule}\n"
    for rule in (
        "* publish $SYS/broker/connection/%c/state",  # the state of mosquitto's bridge
        "* publish,subscribe #",
        "- identify *",
    )
)
SILENCE_S = 30.0
RECONNECT_S = 0.1


class MosquittoBroker:
    """A mosquitto that is stopped cleanly: it acknowledges before it writes. `more`: lines of its configuration."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self._mosquitto = Mosquitto(folder, more)
        self.port = self._mosquitto.port

    async def start(self) -> None:
        self._mosquitto.start()

    async def interrupt(self) -> None:
        await self.stop()
        await self.start()

    def signal(self, number: signal.Signals) -> None:
        self._mosquitto.signal(number)

    async def stop(self) -> None:
        await asyncio.to_thread(self._mosquitto.stop)


class GatewayBroker:
    """Our gateway, which is killed: it has stored all that it acknowledged. `more`: lines behind its listener's."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.port = free_port()
        config = folder / "gateway.toml"
        text = 'name = "gateway"\nacl = "rules"\n[store]\npath = "store"\n'
        config.write_text(f'{text}[[listener]]\nkind = "tcp"\nport = {self.port}\n{more}')
        (folder / "rules").write_text(RULES)
        self._process = Process("gateway", holdfast("gateway", "run", "--config", str(config)), folder / "gateway.log")

    async def start(self) -> None:
        self._process.start()
        await asyncio.to_thread(self._process.says, "ready")

    async def interrupt(self) -> None:
        self._process.kill()
        await self.start()

    def signal(self, number: signal.Signals) -> None:
        self._process.signal(number)

    async def stop(self) -> None:
        await asyncio.to_thread(self._process.stop)


BROKERS: dict[str, type[MosquittoBroker] | type[GatewayBroker]] = {
    "mosquitto": MosquittoBroker,
    "gateway": GatewayBroker,
}


class Reader:
    """A subscriber whose session gathers everything while it is away. `more`: topic filters beside its own."""

    def __init__(self, port: int, qos: int, more: Sequence[str] = ()) -> None:
        self._port = port
        self._qos = qos
        self._filters = (ALL, *more)
        self._came: queue.Queue[paho.MQTTMessage | None] = queue.Queue()

    def subscribe(self) -> None:
        """Leaves a session that the broker fills."""
        client = self._connect()
        client.on_subscribe = lambda *_: self._came.put(None)
        client.subscribe([(one, SubscribeOptions(self._qos)) for one in self._filters])
        self._came.get(timeout=SILENCE_S)
        _leave(client)

    def read(self) -> list[tuple[str, bytes]]:
        """The identities and payloads of all that the broker holds, in its order."""
        came: list[tuple[str, bytes]] = []
        client = self._connect()
        while part := self._read_to_end(client):  # mosquitto lets a new message overtake waiting ones
            came += part
        _leave(client)
        return came

    def _read_to_end(self, client: paho.Client) -> list[tuple[str, bytes]]:
        """What comes before a message of our own of the same QoS; messages of another QoS overtake it."""
        came: list[tuple[str, bytes]] = []
        client.publish(END, qos=self._qos)
        while (message := self._came.get(timeout=SILENCE_S)) is not None and message.topic != END:
            properties: Any = message.properties
            came.append((dict(properties.UserProperty)[IDENTITY_PROPERTY], bytes(message.payload)))
        return came

    def _connect(self) -> paho.Client:
        client = paho.Client(CallbackAPIVersion.VERSION2, READER, protocol=MQTTProtocolVersion.MQTTv5)
        client.on_message = lambda _client, _userdata, message: self._came.put(message)
        properties = _for_ever()
        properties.UserProperty = (WISH_PROPERTY, RECEIVE)
        client.connect("127.0.0.1", self._port, clean_start=False, properties=properties)
        client.loop_start()
        return client


class Commander:
    """Sends numbered commands at QoS 2, one after the other. Each is sent until a broker that comes back has it.

    It is not paho: that publishes a message again which has had its PUBREC, if two attempts to reconnect fail.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._sent = 0
        self._commands: asyncio.Queue[tuple[str, str] | None] = asyncio.Queue()
        self._client: Client | None = None

    def send(self, topic: str) -> str:
        """Returns the command's payload, which is unique."""
        self._sent += 1
        command = f"{topic} {self._sent}"
        self._commands.put_nowait((topic, command))
        return command

    def close(self) -> None:
        """Lets `run` return when the broker has all commands."""
        self._commands.put_nowait(None)

    async def run(self) -> None:
        """Raises TimeoutError where the broker does not take a command."""
        identifier = 0
        while (waiting := await self._commands.get()) is not None:
            identifier += 1
            async with asyncio.timeout(SILENCE_S):
                await self._hand_over(identifier, *waiting)
        if self._client is not None:
            self._client.cut()

    async def _hand_over(self, identifier: int, topic: str, command: str) -> None:
        is_repeated = is_received = False
        while True:
            try:
                client = self._client = self._client or await self._connect()
                if not is_received:
                    client.send(topic, command.encode(), qos=2, dup=is_repeated, packet_identifier=identifier)
                    is_repeated = True
                    await client.expect(Pubrec)
                    is_received = True
                client.release(identifier)
                await client.expect(Pubcomp)
                return
            except (OSError, UnexpectedEvent):
                if self._client is not None:
                    self._client.cut()
                    self._client = None
                await asyncio.sleep(RECONNECT_S)

    async def _connect(self) -> Client:
        return await Client("commander", clean_start=False, session_expiry_s=FOR_EVER_S).connect(self._port)


def _for_ever() -> Properties:
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = FOR_EVER_S
    return properties


def _leave(client: paho.Client) -> None:
    client.disconnect()
    client.loop_stop()
