"""The brokers that have custody of a torture's messages, and the session for which they keep them."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tools.lab.testing.client import Client, UnexpectedEvent
from tools.lab.testing.gateway import Gateway
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.process import Server
from wire.codec.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from wire.identity import IDENTITY_PROPERTY, RECEIVE, find_user_property

READER, ALL, END = "reader", "torture/#", "torture/end"
RULES = "".join(
    f"allow {rule}\n"
    for rule in (
        "* publish $SYS/broker/connection/%c/state",  # the state of mosquitto's bridge
        "* publish,subscribe #",
        "- identify *",
    )
)

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

    async def subscribe(self) -> None:
        """Leaves a session that the broker fills. Raises OSError, UnexpectedEvent."""
        client = await self._connect()
        await client.subscribe(*self._filters, options=self._qos)
        await client.disconnect()

    async def read(self) -> list[tuple[str, bytes]]:
        """The identities and payloads of all that the broker holds, in its order. Raises OSError, UnexpectedEvent."""
        came: list[tuple[str, bytes]] = []
        client = await self._connect()
        while part := await self._read_to_end(client):  # mosquitto lets a new message overtake waiting ones
            came += part
        client.cut()
        return came

    async def _read_to_end(self, client: Client) -> list[tuple[str, bytes]]:
        """What comes before a message of our own of the same QoS; messages of another QoS overtake it."""
        came: list[tuple[str, bytes]] = []
        client.send(END, qos=self._qos)
        while True:
            match await client.event():
                case Publish() as message:
                    client.acknowledge(message)
                    if message.topic == END:
                        return came
                    identity = find_user_property(message.properties, IDENTITY_PROPERTY)
                    assert identity is not None, message
                    came.append((identity, bytes(message.payload)))
                case Pubrec() as pubrec:
                    client.release(pubrec.packet_identifier)
                case Pubrel() as pubrel:
                    client.protocol.pubcomp(pubrel.packet_identifier)
                    client.flush()
                case Puback() | Pubcomp():
                    pass
                case other:
                    raise UnexpectedEvent(f"the reader expects messages, got {other!r}")

    async def _connect(self) -> Client:
        return await Client(READER, clean_start=False, keep_alive_s=0, wishes=[RECEIVE]).connect(self._port)
