"""A message log on a folder, and a look into its file from outside."""

import contextlib
import random
import resource
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

from gateway.auth.permissions import Topics
from gateway.message import Message
from gateway.store import Cursor, Delivery, MessageLog, PublishBatch
from gateway.store.consumers.cursor import PACKET_IDENTIFIERS
from gateway.store.consumers.quotas import TopicLimits, TopicQuotas
from gateway.store.sqlite.marks import note_closed
from gateway.store.tables import log_rows
from wire.bulk.publishes import cut_publishes
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Publish
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.properties import CONTENT_TYPE, MESSAGE_EXPIRY_INTERVAL, USER_PROPERTY

COMMON_PROPERTIES: tuple[dict[int, Any], ...] = ({}, {CONTENT_TYPE: "text/plain"}, {USER_PROPERTY: [("a", "ü")]})


@contextlib.asynccontextmanager
async def opened(folder: Path, commit_interval_ms: int = 0) -> AsyncIterator[MessageLog]:
    log = await MessageLog.open(folder, origin="gw", commit_interval_ms=commit_interval_ms)
    try:
        yield log
    finally:
        await log.close()


@contextlib.contextmanager
def disk_full(size: int = 4096) -> Iterator[None]:
    """No file of this process may be written beyond a size: by default too little for any commit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class CountsBacklogs:
    """Limits under which every cursor counts what waits for it."""

    counts_backlogs = True
    quotas = None

    def __init__(self, topics: TopicLimits | None = None) -> None:
        self._topics = topics

    def topic_quotas(self) -> TopicQuotas | None:
        return None if self._topics is None else TopicQuotas(self._topics)

    def note_committed(self, cursors: Iterable[Cursor]) -> None:
        """Drops nothing."""


async def append_all(log: MessageLog, messages: Iterable[Message]) -> list[int]:
    futures = [log.submit([message]) for message in messages]
    return [position for future in futures for position in await future]


async def append_each(log: MessageLog, messages: Iterable[Message]) -> None:
    """Stores messages, each in a commit and a row of its own."""
    for message in messages:
        await log.submit([message])


def messages_in(folder: Path) -> list[tuple[int, Message]]:
    """What the file holds, with positions."""
    connection = sqlite3.connect(folder / "messages.sqlite")
    try:
        found = log_rows.read(connection, 0, sys.maxsize)
        return [numbered for group in found for numbered in group.read(0, sys.maxsize)]
    finally:
        connection.close()


def stored(folder: Path, query: str, file: str = "messages.sqlite") -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(folder / file)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def epoch_of(folder: Path) -> int:
    """The epoch of the identities that a store gives."""
    return int(stored(folder, "SELECT epoch FROM identity")[0][0])


def numbered(count: int, topic: str = "a") -> list[Message]:
    return [Message(topic, b"%d" % number) for number in range(count)]


def batch_of(
    messages: list[tuple[str, bytes]],
    level: int = MQTT_5,
    properties: dict[int, Any] | None = None,
    *,
    epoch: int = 0,
    first_seq: int = 0,
) -> PublishBatch:
    """PUBLISHes of one client, by topic name and payload, as the fast path cuts them."""
    topics = Topics()
    for name, _ in messages:
        topics.learn(Message(name, b""), lambda _: True)
    packets = [Publish(*message, 1, packet_identifier=5, properties=properties or {}) for message in messages]
    data = b"".join(packet.encode(level) for packet in packets)
    found = cut_publishes(data, 0, level, topics, topics.origins)
    assert found.end == len(data)
    assert found.payload_size == sum(len(payload) for _, payload in messages)
    batch = PublishBatch(data, found.topics, len(packets), level, "client", 1234, "gw", found.content_size)
    batch.epoch, batch.first_seq = epoch, first_seq
    return batch


def random_batch(
    dice: random.Random, count: int, topics: tuple[str, ...] = ("mine/a", "mine/ä"), expires: bool = False
) -> PublishBatch:
    """PUBLISHes as one read of a publisher's connection brings them, with identities or without."""
    level = dice.choice((MQTT_3_1_1, MQTT_5))
    brings = level == MQTT_5 and dice.random() < 0.5
    qos = dice.choice((1, 2))
    used: dict[str, None] = {}
    packets = []
    for number in range(count):
        topic = dice.choice(topics)
        used[topic] = None
        properties = dict(dice.choice(COMMON_PROPERTIES)) if level == MQTT_5 else {}
        if expires and level == MQTT_5:
            properties[MESSAGE_EXPIRY_INTERVAL] = 1000
        if brings:
            identity = encode_identity("device-7", 7, dice.randint(1, 5) + 3 * number)
            properties[USER_PROPERTY] = [*properties.get(USER_PROPERTY, ()), (IDENTITY_PROPERTY, identity)]
        packet = Publish(topic, dice.randbytes(dice.randint(0, 40)), qos, packet_identifier=3, properties=properties)
        packets.append(packet.encode(level))
    now_ms = int(time.time() * 1000)
    batch = PublishBatch(b"".join(packets), used, count, level, "client", now_ms, "gw")
    batch.bring_identities = brings
    return batch


async def take_all(cursor: Cursor) -> list[Message]:
    """Takes and acknowledges all that waits for a consumer."""
    found = []
    while deliveries := await cursor.fetch_now(1000):
        found += [delivery.message for delivery in deliveries]
        cursor.acknowledge_all([delivery.packet_identifier for delivery in deliveries])
    return found


def redeliver_all(cursor: Cursor) -> None:
    """The consumer's connection ends: what it has not acknowledged comes again."""
    cursor.redeliver(range(1, PACKET_IDENTIFIERS + 1))


def payloads(deliveries: list[Delivery]) -> list[int]:
    return [int(delivery.message.payload) for delivery in deliveries]


def leave_as_killed(folder: Path, copy: Path) -> None:
    """Makes a folder with what a gateway that is killed now leaves of its store."""
    copy.mkdir()
    file = "messages.sqlite"
    with (
        contextlib.closing(sqlite3.connect(folder / file)) as left,
        contextlib.closing(sqlite3.connect(copy / file)) as to,
    ):
        left.backup(to)
        note_closed(to)
        to.commit()


def hold_up(begun: Event, ended: Event) -> None:
    """Work that keeps a thread, as a slow disk does."""
    begun.set()
    ended.wait()


async def fetch_many(cursor: Cursor, count: int) -> list[Delivery]:
    """Fetches ``count`` deliveries: large messages come a few at a time."""
    found: list[Delivery] = []
    while len(found) < count:
        found += await cursor.fetch_now(count - len(found))
    return found
