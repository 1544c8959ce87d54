"""Sends the messages of a store under their own identity, before the store is erased."""

import asyncio
from collections.abc import Callable

from device.assembly import NAME_KEY
from device.mqtt.publisher import content_type
from host.credentials import Credentials
from host.server import Server
from tools.cli.board.errors import BoardError, Refused
from tools.cli.board.progress import Progress
from tools.cli.board.settings import Settings
from tools.cli.board.stores import Region
from tools.cli.client import Refused as ServerRefused
from tools.cli.client import connected
from tools.cli.columns import printable
from tools.cli.flash.store import Store
from tools.cli.site.rules import Rights
from wire.errors import WireError
from wire.identity import IDENTITY_PROPERTY, KEEP, WISH_PROPERTY, encode_identity
from wire.properties import CONTENT_TYPE, SESSION_EXPIRY_INTERVAL, USER_PROPERTY
from wire.topics import matches

ANSWER_S = 60.0
NAME = "holdfast-rescue"
FOR_EVER = 0xFFFF_FFFF  # no end of the session [section 3.1.2.11.2]


def origin_of(store: Store, default: str) -> str:
    """The client identifier under which a store's device has sent its messages, noted in the store."""
    noted = store.settings.get(NAME_KEY)
    return noted.value.decode(errors="replace") if noted else default


def name_note(region: Region, client_id: str) -> str:
    """What follows if the messages that stay in a store are another device's than the configured one's; else ""."""
    if region.store is None or not region.unacknowledged:
        return ""
    origin = origin_of(region.store, client_id)
    if origin == client_id:
        return ""
    return (
        f"they are {origin}'s: the board calls itself {origin} until they are sent, with the login of {client_id}. "
        "A gateway with access rules for each device refuses that; --rescue URL sends them first"
    )


def rescue_region(region: Region, settings: Settings, progress: Progress) -> None:
    """Sends the messages of a region where the settings want it. Does nothing where none waits.

    Raises:
        Refused: another user's login would be lent to more than the board's own messages; none was sent.
        BoardError: not all are acknowledged; nothing may be erased.
    """
    store, server = region.store, settings.rescue
    if store is None or server is None or not region.unacknowledged:
        return
    check_lent(region, settings)
    origin = origin_of(store, settings.keys.client_id)
    with progress.step(f"rescued {region.unacknowledged} messages of {origin} to {server}"):
        rescue(store, origin, server, settings.login or Credentials(), lambda _count: None)


def check_lent(region: Region, settings: Settings) -> None:
    """Checks that another user's login is lent to the board's own messages alone: origin and topics are what its flash
    says, and a person who had the board may have written them.

    Raises Refused: a message has another origin than the configured device, or a topic that it does not publish to.
    """
    if region.store is None or settings.rescue is None or not settings.lends:
        return
    keys, login = settings.keys, settings.login
    user = login.user if login else ""
    own = Rights.of_device(keys.topic, keys.status.topic if keys.status else "").publish
    origin = origin_of(region.store, keys.client_id)
    if origin != keys.client_id:
        raise Refused(
            f"the store at {region.place} has messages of {printable(origin)}, and {settings.config} is of "
            f"{keys.client_id}: the rights of {user} are lent to the messages of {keys.client_id} alone. Rescue them "
            f"with the configuration of {printable(origin)}, or with its own login"
        )
    for number, message in sorted(region.store.messages.items()):
        if not any(matches(one, message.topic) for one in own):
            raise Refused(
                f"message {number} in the store at {region.place} is for the topic {printable(message.topic)}, "
                f"to which {keys.client_id} does not publish by {settings.config}: the rights of {user} are not lent "
                "to it. Rescue it with the board's own login, without --user"
            )


def rescue(
    store: Store, origin: str, server: Server, credentials: Credentials, on_done: Callable[[int], object]
) -> None:
    """Sends all messages of a store and returns when the broker has acknowledged each of them.

    The broker is asked to refuse what it would give another identity. A message that was sent before, by the device or
    by an earlier rescue, has the same identity, by which the tables drop it.

    Args:
        origin: the device's client identifier.
        on_done: called with the number of messages that are acknowledged.

    Raises:
        BoardError: not all are acknowledged; nothing may be erased.
    """
    count = len(store.messages)
    done = [0]
    try:
        asyncio.run(_send(store, origin, server, credentials, done, on_done))
    except (OSError, ServerRefused, WireError, ValueError) as error:
        raise BoardError(
            f"{server} has acknowledged {done[0]} of {count} messages of {origin}, and then: "
            f"{str(error) or type(error).__name__}. Nothing was erased; log in as user {origin}, or as a user with a "
            "rule to identify it"
        ) from error


async def _send(
    store: Store,
    origin: str,
    server: Server,
    credentials: Credentials,
    done: list[int],
    on_done: Callable[[int], object],
) -> None:
    wish: dict[int, object] = {USER_PROPERTY: [(WISH_PROPERTY, KEEP)]}
    # Without an account only the client identifier tells whose messages these are. The device's session goes on.
    client_id = origin if credentials.user is None else None
    if client_id is not None:
        wish[SESSION_EXPIRY_INTERVAL] = FOR_EVER
    async with asyncio.timeout(ANSWER_S) as limit, connected(server, credentials, NAME, wish, client_id) as client:
        sent = 0

        def note() -> None:
            limit.reschedule(asyncio.get_running_loop().time() + ANSWER_S)
            done[0] = sent - client.unacknowledged
            on_done(done[0])

        for number, message in sorted(store.messages.items()):
            identity = encode_identity(origin, store.epoch, number)
            properties: dict[int, object] = {USER_PROPERTY: [(IDENTITY_PROPERTY, identity)]}
            if kind := content_type(message.payload):
                properties[CONTENT_TYPE] = kind
            await client.publish(message.topic, message.payload, properties, message.retain)
            sent += 1
            note()
        while client.unacknowledged:
            await client.take_puback()
            note()
