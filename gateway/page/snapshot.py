"""What the status page shows at one moment. Every viewer gets the same snapshot."""

from collections.abc import Mapping
from typing import NamedTuple

from gateway.page.history import History
from gateway.page.standing import Hop, Standing
from gateway.store import drops


class DeviceFacts(NamedTuple):
    """A device. ``heard_ms`` is when it last sent a message (Unix time, 0: not since the gateway's start).

    Its standing is FINE if it keeps to its own rhythm, ODD if it is silent for unusually long, UNKNOWN while its rhythm
    is not known. ``usual_s`` is its usual pause, 0.0 while that is not known.
    """

    name: str
    standing: Standing
    connected: bool
    heard_ms: int
    seen_ms: int
    usual_s: float


class StoreFacts(NamedTuple):
    """A stream's store. ``ends_s`` is in how many seconds its room ends at the present pace: infinite if it does not
    shrink, None if the pace is not known yet."""

    stream: str
    messages: int
    size: int
    left_bytes: int
    left_messages: int | None
    ends_s: float | None
    when_full: str
    is_full: bool


class KeptFacts(NamedTuple):
    """What a route keeps until a receipt from the tables: messages, and the bytes that they take in the store.

    ``oldest_ms`` is when the first gateway accepted the oldest of these messages, ``landed_ms`` up to when the tables
    have all that was landed, as the newest receipt says (Unix time, 0: not known). ``sent_again`` counts the messages
    that went again, as the tables had passed over them.
    """

    route: str
    messages: int
    size: int
    oldest_ms: int
    landed_ms: int
    sent_again: int


class Missing(NamedTuple):
    """A range of what is missing in a stream, "" for the default one."""

    stream: str
    dropped: drops.Dropped


class Snapshot(NamedTuple):
    """All that the page shows. ``devices`` are those of most concern, ``counts`` how many of all stand how.

    ``missing`` is None if it could not be read. ``per_s`` has the rates "received", "sent" and "stored".
    """

    at_s: float
    gateway: str
    version: str
    since_s: float
    connections: int
    per_s: Mapping[str, float]
    hops: list[Hop]
    kept: list[KeptFacts]
    stores: list[StoreFacts]
    devices: list[DeviceFacts]
    counts: Mapping[Standing, int]
    connected_devices: int
    missing: list[Missing] | None
    problems: list[str]
    notes: list[str]
    history: History
