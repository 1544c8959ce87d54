"""What a route's queue goes by, whatever system the route leads to."""

from dataclasses import dataclass
from typing import NamedTuple

from gateway.links import Side
from gateway.routes import SelectConfig
from uplink.config.keeping import KeepSettings
from uplink.shape import ShapeConfig

INFLIGHT_WINDOW_MAX = 65535
"""Packet identifiers of one connection [MQTT-2.2.1]."""
STATEMENT_INTERVAL_S = 600


class QueueNeighbour(NamedTuple):
    """The neighbour of a route: its side of the link, and whether it is a gateway, and in mode active-passive."""

    side: Side
    is_gateway: bool
    is_passive: bool


@dataclass(frozen=True)
class QueueSettings:
    """The settings of a route that its queue goes by; ``RouteConfig`` and ``ForeignConfig`` make one.

    ``broker`` is a URL. ``sent`` are the topic filters of the messages that the route sends, None: the filters that the
    store knows. ``batch_limits`` are the most messages and bytes in a batch, and the milliseconds that a message waits
    for others; None: there are no batches. ``keep`` is None where an acknowledgement ends custody. The other names are
    keys of the configuration.
    """

    broker: str = ""
    sent: tuple[str, ...] | None = None
    shape: tuple[ShapeConfig, ...] = ()
    outgoing: tuple[SelectConfig, ...] = ()
    neighbour: QueueNeighbour | None = None
    qos0: str = "store"
    order: str = ""
    backfill_weight: int = 0
    backfill_rate: int | None = None
    inflight_window: int = INFLIGHT_WINDOW_MAX
    batch_topic: str | None = None
    batch_limits: tuple[int, int, int] | None = None
    states_every_s: int = 0
    needs_subscriber: bool = False
    max_messages: int | None = None
    max_bytes: int | None = None
    max_age_s: int | None = None
    max_messages_per_origin: int | None = None
    max_bytes_per_origin: int | None = None
    keep: KeepSettings | None = None


NOT_CONFIGURED = QueueSettings()
"""A route that is no longer configured keeps everything that waits for it."""
