"""The brokers that have custody of a torture's messages, and the session for which they keep them."""

import queue
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tools.lab.testing.gateway import Gateway
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.process import Server
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

CUSTODIANS: dict[str, Callable[[Path, str], Server]] = {
    "mosquitto": Mosquitto,
    "gateway": partial(Gateway, rules=RULES),
}
"""By name, what makes one in a folder, with more lines of its configuration. Its `interrupt` loses nothing."""


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


def _for_ever() -> Properties:
    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = FOR_EVER_S
    return properties


def _leave(client: paho.Client) -> None:
    client.disconnect()
    client.loop_stop()
