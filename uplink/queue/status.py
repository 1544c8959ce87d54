"""What operators are told of a route: how it is doing."""

import msgspec


class RouteStatus(msgspec.Struct, frozen=True):
    """How a route is doing.

    ``broker`` is "" for a route that is no longer configured. ``server`` is the one of its servers to which it is
    ``connected``, "" for none. ``stands``: the broker can be reached, and no message
    goes out. ``received_messages`` came down since the start. ``oldest_ms``, ``acknowledged_ms`` and ``last_error_ms``
    are Unix times, 0 for none. ``age_s`` is how long the oldest message waits, and ``drain_s`` how long it takes until
    all that waits has gone, as fast as in the last minute; infinite if nothing has gone. ``problem`` is why the route
    has no connection or stands, what does not come down as asked for, or which statements the broker does not take; ""
    if nothing is wrong. ``last_error`` is the
    last error. ``order`` is the configured one, "" for a route that is no longer configured. ``live_messages`` and
    ``backfill_messages`` are those of each lane. ``unproven_messages`` and ``unproven_bytes`` are kept for a receipt,
    ``unproven_ms`` is when the first gateway accepted the oldest of them, 0 for none, and ``unproven_sent`` counts what
    went again. All that was landed up to ``landed_ms`` is in the tables, 0: nothing said so.
    """

    name: str
    broker: str
    server: str
    connected: bool
    stands: bool
    backlog_messages: int
    backlog_bytes: int
    oldest_ms: int
    age_s: float
    drain_s: float
    acknowledged_ms: int
    refused_messages: int
    reconnects: int
    retries: int
    received_messages: int
    problem: str
    last_error: str
    last_error_ms: int
    order: str
    live_messages: int
    backfill_messages: int
    unproven_messages: int = 0
    unproven_bytes: int = 0
    unproven_ms: int = 0
    unproven_sent: int = 0
    landed_ms: int = 0
