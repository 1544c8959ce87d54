"""A cursor from which a sender takes messages, and what is on its way from there."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from gateway.delivery.retained_cursor import RetainedCursor
from gateway.store import Delivery, qos2
from gateway.subscriptions import Subscription


class OwnCursor(Protocol):
    """A session's cursor as the sender uses it: a `Cursor`, or what a route puts before one."""

    consumer: str
    durable: bool

    async def fetch_now(self, limit: int, /) -> list[Delivery]: ...

    def wake_with(self, wake: Callable[[], None] | None, /) -> None: ...

    def acknowledge_all(self, packet_identifiers: list[int], /) -> object: ...

    def redeliver(self, packet_identifiers: Iterable[int], /) -> None: ...


@dataclass(eq=False, slots=True)
class Source:
    """A cursor whose messages this client gets: its session's, the one with retained messages, or a group's.

    ``shared`` is the subscription to the group. ``held`` are the deliveries that are not acknowledged, and ``sent``
    the ones in flight among them. ``is_sending`` is True while one batch is being sent; once ``is_closed`` nothing
    more is fetched. ``task`` fetches: from a group's cursor all the time, from the others while messages wait.
    ``again`` are the flows of earlier connections to send again, the newest first; each goes before the deliveries
    behind its position.
    """

    cursor: OwnCursor | RetainedCursor
    shared: Subscription | None = None
    held: set[int] = field(default_factory=set)
    sent: set[int] = field(default_factory=set)
    is_sending: bool = False
    is_closed: bool = False
    task: asyncio.Task[None] | None = None
    again: list[qos2.Flow] = field(default_factory=list)
