"""Receipts to a broker: what it does not have yet of them, as retained messages.

The broker itself knows what was published: the receipt for all that was landed goes last, when each other one is
acknowledged, and names its batch. So a run that is killed leaves no trace, and the next one publishes what is left. A
broker that has lost its messages gets all of them again.

Each receipt brings an identity of this client's own, whose numbers follow the last ones. So a gateway gives it none of
its own numbers, which would look lost in the tables: a lander lands no receipts.
"""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from itertools import count
from typing import NamedTuple

from cloud import Receipts
from host.credentials import Credentials
from host.server import Server
from tools.cli.client import Client, Refused, connected
from tools.cli.failure import words_of
from wire.codec.packets import Publish, Suback
from wire.codec.subscribe import NO_LOCAL
from wire.errors import WireError
from wire.identity import (
    IDENTITY_PROPERTY,
    RECEIVE,
    SEQ_MAX,
    USER_PROPERTY,
    WISH_PROPERTY,
    decode_identity,
    encode_identity,
    find_user_property,
)
from wire.reasons import UNSPECIFIED_ERROR, describe
from wire.receipt import LANDED_TOPIC, RECEIPT_TOPICS

ANSWER_S = 60.0
RETAINED_S = 2.0
"""How long to wait, once subscribed, for a retained message that may not be there."""


class Published(NamedTuple):
    """What a run has published: receipts of origins, and whether the broker had none of these tables before."""

    receipts: int
    is_first: bool


def publish_receipts(receipts: Receipts, server: Server, credentials: Credentials, everything: bool) -> Published:
    """Publishes the receipts that a broker lacks; it has acknowledged them when this returns.

    everything: publishes those of all origins.

    Raises ConfigError, Refused, WireError, and OSError, also if the tables cannot be read.
    """
    return asyncio.run(_publish(receipts, server, credentials, everything))


async def _publish(receipts: Receipts, server: Server, credentials: Credentials, everything: bool) -> Published:
    name = f"receipts-{receipts.tables}"
    try:
        async with asyncio.timeout(ANSWER_S) as deadline, AsyncExitStack() as leaving:
            with _naming(server):
                wish: dict[int, object] = {USER_PROPERTY: [(WISH_PROPERTY, RECEIVE)]}
                client = await leaving.enter_async_context(connected(server, credentials, name, wish, name))
                before = await _retained(client)
            known = bytes(before.payload) if before else b""
            since = receipts.published(known)
            publishing = _Publishing(client, server, deadline, _identities(name, before))
            sent = 0
            for topic, payload in receipts.of_origins(None if everything else since):
                await publishing.send(topic, payload)
                sent += 1
            await publishing.settle()
            topic, payload = receipts.landed()
            if sent or payload != known:
                await publishing.send(topic, payload)
                await publishing.settle()
    except TimeoutError:
        raise TimeoutError(f"{server} has not answered for {ANSWER_S:.0f} s") from None
    return Published(sent, since is None)


class _Publishing:
    """Messages on their way to a broker, each with the next identity. `deadline` is moved as long as it answers."""

    def __init__(self, client: Client, server: Server, deadline: asyncio.Timeout, identities: Iterator[str]) -> None:
        self._client = client
        self._server = server
        self._deadline = deadline
        self._identities = identities

    async def send(self, topic: str, payload: bytes) -> None:
        """Sends a message to be retained, as soon as the broker has room for it."""
        self._extend()
        identity = (IDENTITY_PROPERTY, next(self._identities))
        with _naming(self._server):
            await self._client.publish(topic, payload, {USER_PROPERTY: [identity]}, retain=True)

    async def settle(self) -> None:
        """Returns when all that was sent is acknowledged."""
        while self._client.unacknowledged:
            self._extend()
            with _naming(self._server):
                await self._client.take_puback()

    def _extend(self) -> None:
        self._deadline.reschedule(asyncio.get_running_loop().time() + ANSWER_S)


async def _retained(client: Client) -> Publish | None:
    """Returns the receipt for all that was landed which the broker has; None if it has none."""
    client.protocol.subscribe([(LANDED_TOPIC, NO_LOCAL)])
    found = None
    is_subscribed = False
    with suppress(TimeoutError):
        async with asyncio.timeout(None) as wait:
            while not (found and is_subscribed):
                event = await client.event()
                if isinstance(event, Publish):
                    found = event
                elif isinstance(event, Suback):
                    if event.reason_codes[0] >= UNSPECIFIED_ERROR:
                        reason = describe(event.reason_codes[0])
                        raise Refused(f"the server refuses a subscription to {LANDED_TOPIC}: {reason}")
                    is_subscribed = True
                    wait.reschedule(asyncio.get_running_loop().time() + RETAINED_S)
    return found


@contextmanager
def _naming(server: Server) -> Iterator[None]:
    """Has what goes wrong with a broker name it."""
    try:
        yield
    except (Refused, WireError) as error:
        raise Refused(f"{server}: {error} (its rules have to name {RECEIPT_TOPICS}#)") from None
    except OSError as error:
        raise OSError(f"{server}: {words_of(error)}") from None


def _identities(name: str, before: Publish | None) -> Iterator[str]:
    """Yields identities of this client, which go on behind the last one that the broker has."""
    epoch, last = secrets.randbits(32), 0
    with suppress(ValueError):
        text = find_user_property(before.properties, IDENTITY_PROPERTY) if before else None
        origin, *found = decode_identity(text or "")
        if origin == name and found[1] < SEQ_MAX >> 1:
            epoch, last = found
    return (encode_identity(name, epoch, seq) for seq in count(last + 1))
