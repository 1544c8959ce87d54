"""How a message is published: whether it may be, which work stores it, and the messages of the gateway itself."""

import sys
from collections.abc import Iterable

from gateway.auth.permissions import Permissions
from gateway.counters import Counters
from gateway.limits import Limits, Verdict
from gateway.message import Message
from gateway.sessions.copies import Copies
from gateway.sessions.offers import Offers
from gateway.store import Cursor, MessageLog, PublishBatch, Work, drops, retained
from wire.bulk.property_block import COLUMN_BATCH
from wire.connection.server import USER_PROPERTIES_MAX
from wire.properties import CONTENT_TYPE, PAYLOAD_FORMAT_INDICATOR, USER_PROPERTY
from wire.reasons import NOT_AUTHORIZED, PAYLOAD_FORMAT_INVALID, QUOTA_EXCEEDED, SUCCESS


class Publishing:
    """Publishes messages. ``announced`` has the gateway's own retained messages by topic, which are not stored.

    Args:
        gateway: the gateway's name.
        offers: gives the messages of QoS 0 to their subscribers.
        log: stores all others.
        limits: says whether a retained message may be kept.
        counters: counts the identities that are replaced.
    """

    def __init__(self, gateway: str, offers: Offers, log: MessageLog, limits: Limits, counters: Counters) -> None:
        self.announced: dict[str, Message] = {}
        self._gateway = gateway
        self._offers = offers
        self._log = log
        self._limits = limits
        self._counters = counters

    def announce(self, message: Message) -> None:
        """Publishes a message of the gateway's own; later subscribers get it as a retained message."""
        self.announced[message.topic] = message
        self._offers.offer(message)

    def withdraw(self, topic: str) -> None:
        """Takes back what was announced on a topic: a retained message without a payload (MQTT 5, 3.3.1.3)."""
        del self.announced[topic]
        self._offers.offer(Message(topic, b"", 0, retain=True))

    def check(
        self,
        message: Message,
        permissions: Permissions,
        came_ms: int,
        *,
        is_unreadable: bool = False,
        keeps_identities: bool = False,
    ) -> tuple[int, bool]:
        """Says whether a client may publish a message, in a PUBLISH or a will.

        A message with an identity that cannot be read, or that its client may not bring, gets a new one. A route
        number whose gateway the client may not vouch for gets another name, and so does the property of real-time
        messages between gateways. A column batch brings many identities: the client has to be allowed to bring all of
        them.

        Args:
            message: the message.
            permissions: the client's.
            came_ms: when the message came, as Unix time.
            is_unreadable: whether it has brought an identity that cannot be read.
            keeps_identities: whether the client would rather have the message refused than get a new identity.

        Returns:
            The reason code, SUCCESS if the message may be published, and whether it has a new identity.
        """
        if not permissions.may_send(message) or message.topic in self.announced:
            return NOT_AUTHORIZED, False
        is_replaced = is_unreadable or not permissions.may_bring(message)
        if is_replaced:
            if keeps_identities:
                return NOT_AUTHORIZED, False
            self._counters.identities_replaced += 1
            message.renew(self._gateway, came_ms)
        if not permissions.may_vouch(message.received_by):  # perhaps for this gateway
            message.received_ms, message.received_by = came_ms, self._gateway
        if not (message.qos or message.is_realtime):
            message.reject_realtime()
        if message.reject_links(permissions.may_vouch):
            self._counters.links_rejected += 1
        if message.properties.get(CONTENT_TYPE) == COLUMN_BATCH and not _may_bring_batch(message.payload, permissions):
            return NOT_AUTHORIZED, is_replaced
        if message.properties.get(PAYLOAD_FORMAT_INDICATOR) and not _is_text(message.payload):
            return PAYLOAD_FORMAT_INVALID, is_replaced
        if len(message.properties.get(USER_PROPERTY, ())) > USER_PROPERTIES_MAX:
            return QUOTA_EXCEEDED, is_replaced
        return SUCCESS, is_replaced

    def refuse(self, message: Message, permissions: Permissions) -> None:
        """Notes that a message of a client is not published."""
        self._renew_foreign(message, permissions)
        self._log.drop(drops.REJECTED, drops.GATEWAY, message)

    def set_aside(self, message: Message, permissions: Permissions) -> Work:
        """Returns the work that notes durably that a message is not published: its client is told that it was."""
        self._renew_foreign(message, permissions)
        return drops.Drop(drops.REJECTED, drops.GATEWAY, message)

    def _renew_foreign(self, message: Message, permissions: Permissions) -> None:
        """Otherwise a client could leave ranges with another origin."""
        if not permissions.may_bring(message):
            message.renew(message.received_by, message.received_ms)

    def publish(self, part: Message | PublishBatch, copies: Copies | None = None) -> list[Work]:
        """Sends a message of QoS 0 to its subscribers; returns the work that the log has to store.

        Messages of QoS 1 and 2 reach their subscribers by cursors, when they are durable. The message comes first among
        the work. One of QoS 0 is among it only if a route takes it and the limits allow it.

        ``copies`` are the copies of the link that it came over: it is retained only if it becomes one of them.
        """
        if isinstance(part, PublishBatch):
            return [part]
        message, work = part, list[Work]()
        if message.qos:
            work.append(message)
        else:
            self._offers.offer(message)
            if (takers := self._log.audience.takers_of_qos_0) and not message.is_realtime:
                work += self._store_qos_0(message, takers)
        if message.retain and copies is not None and not copies.wants(message.topic):
            return work
        if message.retain and self._limits.may_keep(message):
            work.append(retained.Keep(message) if copies is None else retained.KeepCopy(message))
            if copies is not None:
                copies.take(message.topic)
        elif message.retain and message.qos:
            work.append(drops.Drop(drops.REJECTED, drops.RETAINED, message))
        elif message.retain:
            self._log.drop(drops.REJECTED, drops.RETAINED, message)
        return work

    def _store_qos_0(self, message: Message, takers: Iterable[Cursor]) -> list[Work]:
        """Returns a message of QoS 0 as work if a route takes it; without room for it, each such route drops it."""
        takers = [cursor for cursor in takers if cursor.takes(sys.maxsize, message)]
        has_room = self._limits.verdict_below_filters(message.topic, takers, message.publisher) is Verdict.TAKE
        if takers and has_room and not self._limits.refuses(message.owner):
            self._counters.qos_0_stored += 1
            return [message]
        for cursor in takers:
            self._log.drop(drops.REJECTED, cursor.consumer, message)
        return []


def _is_text(payload: bytes) -> bool:
    """Whether a payload is well-formed UTF-8 [section 3.3.2.3.2]."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _may_bring_batch(payload: bytes, permissions: Permissions) -> bool:
    """Whether a client may bring the identities in a column batch. One whose origins cannot be read brings none."""
    if not permissions.identifies_some:
        return False
    from wire.bulk.column_batch import MalformedBatch, origins_of  # few gateways need it, and it takes memory

    try:
        return all(map(permissions.may_identify, origins_of(payload)))
    except MalformedBatch:
        return True
