"""A client that speaks AMQP 1.0 to a broker. It needs python-qpid-proton: import it where that is there."""

import asyncio
from typing import Any

import proton

from tools.lab.testing.amqp import Durable, connect
from tools.lab.testing.rabbitmq import RabbitMq


class Peer:
    """A client of the broker, which blocks."""

    def __init__(self, broker: RabbitMq, virtual_host: str) -> None:
        self._connection = connect(broker.url, virtual_host)

    def put(self, address: str, *messages: Any) -> None:
        sender = self._connection.create_sender(address, options=Durable())
        for message in messages:
            message.durable = True
            sender.send(message)

    def get(self, address: str, count: int) -> list[Any]:
        receiver = self._connection.create_receiver(address, credit=100, options=Durable())
        found = []
        for _ in range(count):
            found.append(receiver.receive(timeout=30))
            receiver.accept()
        return found

    def receive_all(self, address: str, expected: set[str]) -> None:
        """Returns when all these identities have come; some messages may come twice."""
        receiver = self._connection.create_receiver(address, credit=100, options=Durable())
        missing = set(expected)
        while missing:
            try:
                missing.discard(receiver.receive(timeout=30).id)
            except proton.Timeout:
                raise AssertionError(f"{len(missing)} of {len(expected)} did not come: {sorted(missing)}") from None
            receiver.accept()

    def close(self) -> None:
        self._connection.close()


async def with_peer(broker: RabbitMq, work: str, *args: Any, virtual_host: str = "/") -> Any:
    """Returns what a method of `Peer` does; its connection is closed then."""

    def run() -> Any:
        peer = Peer(broker, virtual_host)
        try:
            return getattr(peer, work)(*args)
        finally:
            peer.close()

    return await asyncio.to_thread(run)
