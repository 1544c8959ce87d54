"""What sends commands to the tortured devices."""

import asyncio

from tools.lab.testing.client import Client, UnexpectedEvent
from tools.lab.testing.process import ProcessFailed
from wire.codec.packets import Pubcomp, Pubrec

RECONNECT_S = 0.1
SILENCE_S = 30.0


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
        """Raises ProcessFailed where the broker does not take a command."""
        identifier = 0
        while (waiting := await self._commands.get()) is not None:
            identifier += 1
            try:
                async with asyncio.timeout(SILENCE_S):
                    await self._hand_over(identifier, *waiting)
            except TimeoutError:
                raise ProcessFailed(f"the broker did not take command {identifier} in {SILENCE_S:g} s") from None
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
        return await Client("commander", clean_start=False).connect(self._port)
