"""A message as a consumer gets it, by its subscriptions."""

from collections.abc import Sequence
from typing import NamedTuple

from gateway.message import Message
from gateway.subscriptions import Subscription


class Grant(NamedTuple):
    """How a consumer takes a message, by all of its subscriptions that match.

    ``qos`` is the lower one of the message's and the highest subscription's; ``retain`` is the message's where one of
    them takes it as published; ``identifiers`` are theirs [MQTT-3.3.4-3].
    """

    qos: int
    retain: bool = False
    identifiers: tuple[int, ...] = ()


class Delivery(NamedTuple):
    """A message for the consumer, as it is granted."""

    position: int
    packet_identifier: int
    message: Message
    dup: bool
    qos: int
    retain: bool = False
    identifiers: tuple[int, ...] = ()


def grant_by(subscriptions: Sequence[Subscription], message: Message) -> Grant:
    """Returns how a message is taken by subscriptions that match it, at least one."""
    return Grant(
        min(message.qos, max(subscription.qos for subscription in subscriptions)),
        message.retain and any(subscription.retain_as_published for subscription in subscriptions),
        tuple(subscription.identifier for subscription in subscriptions if subscription.identifier),
    )
