"""The gateway's metrics for Prometheus."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.counters import Counters, Histogram, LinkStatus, MulticastState, RouteState, State, StreamState
from wire.reasons import describe

COUNTERS = {
    "connections_opened": "Connections that a listener has taken.",
    "connections_accepted": "Connections whose CONNECT was accepted.",
    "sessions_expired": "Sessions that ended because their client stayed away.",
    "bytes_received": "Bytes of MQTT received.",
    "bytes_sent": "Bytes of MQTT sent.",
    "packets_received": "Control packets received.",
    "packets_sent": "Control packets sent.",
    "payload_bytes_received": "Payload bytes of PUBLISHes received.",
    "payload_bytes_sent": "Payload bytes of PUBLISHes sent.",
    "messages_stored": "Messages stored and synced.",
    "identities_replaced": "Messages that brought an identity which may not be used or read, and got a new one.",
    "links_rejected": "Messages that brought a route number whose gateway their client may not identify.",
    "qos_0_stored": "Messages of QoS 0 that were stored for routes.",
    "messages_returned": "Messages that came back by way of other gateways, and were not stored again.",
    "messages_duplicate": "Messages that came over a link before, and were not stored again.",
    "messages_conflict": "Messages that came over a link with the identity of another message; they were stored.",
    "messages_flooded": "Real-time messages that were sent to neighbours, each counted once for each of them.",
    "announcements_sent": "Payloads in which this gateway has told neighbours what is wanted here.",
    "announcements_received": "Payloads in which neighbours have told what they want.",
    "link_states_sent": "Payloads with link states that this gateway has sent.",
    "link_states_received": "Payloads with link states that neighbours have sent.",
}
GAUGES = {
    "connections": "Connected clients.",
    "sessions": "Sessions, their clients connected or not.",
    "sessions_away": "Sessions whose client is not connected.",
    "subscriptions": "Subscriptions of all sessions.",
    "shared_subscriptions": "Shared subscriptions among them.",
    "retained_messages": "Retained messages.",
    "stored_messages": "Messages in the store now.",
    "stored_bytes": "Size of the store's files in bytes.",
}
ROUTE_GAUGES: dict[str, tuple[str, Callable[[RouteState], float]]] = {
    "connected": ("Whether a route has its connection.", lambda route: float(route.connected)),
    "backlog_messages": ("Messages that wait for a route.", lambda route: route.backlog_messages),
    "backfill_messages": ("Messages that wait for a route in its backfill.", lambda route: route.backfill_messages),
    "live_messages": ("Messages that wait for a route and are not in its backfill.", lambda route: route.live_messages),
    "refused_messages": (
        "Messages that a route's broker refused and that are set aside.",
        lambda route: route.refused_messages,
    ),
    "stands": (
        "Whether no message goes out although the broker can be reached.",
        lambda route: float(bool(route.stands)),
    ),
    "backlog_bytes": (
        "Payload, topic names and properties of the messages that wait for a route, in bytes.",
        lambda route: route.backlog_bytes,
    ),
    "backlog_age_seconds": (
        "How long the oldest message that waits for a route has waited.",
        lambda route: route.backlog_age_s,
    ),
    "drain_seconds": (
        "How long until all that waits has gone, as fast as in the last minute.",
        lambda route: route.drain_s,
    ),
    "last_acknowledged_timestamp_seconds": (
        "When the next broker last acknowledged a message, as Unix time.",
        lambda r: r.acknowledged_ms / 1000,
    ),
    "unproven_messages": (
        "Messages that the next broker has acknowledged, and that are kept until a receipt.",
        lambda route: route.unproven_messages,
    ),
    "unproven_bytes": ("Bytes in the store of these messages.", lambda route: route.unproven_bytes),
    "unproven_age_seconds": (
        "How long ago the first gateway accepted the oldest of these messages.",
        lambda route: route.unproven_age_s,
    ),
    "landed_timestamp_seconds": (
        "Up to when all that was landed is in the tables, by the newest receipt, as Unix time.",
        lambda route: route.landed_ms / 1000,
    ),
}
ROUTE_COUNTERS = {
    "reconnects": "Connections of a route after its first one.",
    "retries": "Messages that a route has sent again.",
    "qos_0_sent": "Messages of QoS 0 that a route has sent as they came.",
    "qos_0_dropped": "Messages of QoS 0 that a route has not sent.",
    "received_messages": "Messages that came down over a route.",
    "unproven_sent": "Messages that a route has sent again because the tables had passed over them.",
}
LINK_GAUGES: dict[str, tuple[str, Callable[[LinkStatus], float]]] = {
    "connected": ("Whether a link is up.", lambda link: float(link.connected)),
    "set_aside": (
        "Whether a link carries no messages, as it closes a circle.",
        lambda link: float(bool(link.set_aside)),
    ),
    "filters_wanted": ("Topic filters that the neighbour wants here.", lambda link: link.wanted),
    "filters_asked": ("Topic filters that this gateway wants of the neighbour.", lambda link: link.asked),
    "filters_refused": (
        "Topic filters that this gateway asked for and the neighbour refuses.",
        lambda link: len(link.refused),
    ),
    "backlog_messages": ("Messages that wait for the neighbour.", lambda link: link.waiting_messages),
    "backlog_bytes": (
        "Payload, topic names and properties of the messages that wait for the neighbour, in bytes.",
        lambda link: link.waiting_bytes,
    ),
}
STREAM_GAUGES: dict[str, tuple[str, Callable[[StreamState], float]]] = {
    "sessions": ("Sessions in a stream, visiting ones included.", lambda one: one.sessions),
    "subscriptions": ("Subscriptions in a stream.", lambda one: one.subscriptions),
    "retained_messages": ("Retained messages of a stream.", lambda one: one.retained_messages),
    "stored_messages": ("Messages in a stream's store now.", lambda one: one.stored_messages),
    "stored_bytes": ("Size of the files of a stream's store in bytes.", lambda one: one.stored_bytes),
    "full": ("Whether a stream's store is full.", lambda one: float(one.is_full)),
}
STREAM_COUNTERS: dict[str, tuple[str, Callable[[StreamState], float]]] = {
    "messages_received": ("PUBLISHes received in a stream.", lambda one: one.received),
    "messages_sent": ("PUBLISHes sent in a stream.", lambda one: one.sent),
    "messages_stored": ("Messages of a stream that were stored and synced.", lambda one: one.stored),
    "messages_dropped": ("Messages of a stream that were dropped.", lambda one: one.dropped),
}
MULTICAST_GAUGES: dict[str, tuple[str, Callable[[MulticastState], float]]] = {
    "receivers": ("Connected receivers of a multicast group.", lambda group: group.receivers),
    "goes_out": ("Whether the datagrams of a multicast group leave.", lambda group: float(not group.problem)),
}
MULTICAST_COUNTERS = {
    "datagrams_sent": "Datagrams of a multicast group that were sent, heartbeats included.",
    "messages_sent": "Messages in datagrams of a multicast group.",
    "bytes_sent": "Bytes of all datagrams of a multicast group.",
    "oversize_messages": "Messages that fitted no datagram of a multicast group, and went over TLS.",
    "keys_handed_out": "Keys of a multicast group that were handed out.",
}
CONNECTOR_COUNTERS = {
    "polls": "Requests to a unit of a connector, or lines that it has sent.",
    "errors": "Requests or lines of a unit that gave no readings.",
    "silences": "Requests that a unit did not answer.",
    "corrupt": "Answers of a unit with a wrong checksum, or to another request.",
    "exceptions": "Exceptions with which a unit answered.",
    "gaps": "Times in which a unit was not read, as its messages tell them.",
    "missed": "Polls of a unit for which there was no time.",
}
LINK_LABELS = ("link", "neighbour", "zone", "mode")


class Metrics(Collector):
    """Reads the numbers when a scrape asks for them, and never in between.

    Args:
        counters: what the gateway counts.
        state: returns the gateway's state.
        problems: returns what is wrong now, as `/healthz` says it.
    """

    def __init__(self, counters: Counters, state: Callable[[], State], problems: Callable[[], Sequence[str]]) -> None:
        self._counters = counters
        self._state = state
        self._problems = problems
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Returns the exposition in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        counters, state = self._counters, self._state()
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(f"holdfast_{name}", text, getattr(counters, name))
        for name, text in GAUGES.items():
            yield GaugeMetricFamily(f"holdfast_{name}", text, getattr(state, name))
        yield GaugeMetricFamily("holdfast_faults", "What is wrong now, in lines of /healthz.", len(self._problems()))
        refused = {describe(code): count for code, count in sorted(counters.connections_refused.items())}
        yield _by("connections_refused", "Connections refused.", "reason", refused)
        for name, counts in (("received", counters.messages_received), ("sent", counters.messages_sent)):
            by_qos = {str(qos): count for qos, count in enumerate(counts)}
            yield _by(f"messages_{name}", f"PUBLISHes {name}.", "qos", by_qos)
        yield _by("messages_dropped", "Messages dropped.", "reason", counters.messages_dropped)
        yield _histogram("commit_seconds", "Time a commit took, its sync included.", counters.commit_s)
        yield from _routes(state)
        yield from _links(state)
        yield from _streams(state)
        yield from _multicast(state)
        yield from _connectors(state)


def _by(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"holdfast_{name}", text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    buckets, below = [], 0
    for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        below += count
        buckets.append((str(bound), float(below)))
    return HistogramMetricFamily(f"holdfast_{name}", text, buckets=buckets, sum_value=histogram.sum)


def _routes(state: State) -> Iterator[Metric]:
    for name, (text, value_of) in ROUTE_GAUGES.items():
        gauge = GaugeMetricFamily(f"holdfast_route_{name}", text, labels=["route"])
        for route in state.routes:
            gauge.add_metric([route.name], value_of(route))
        yield gauge
    for name, text in ROUTE_COUNTERS.items():
        yield _by(f"route_{name}", text, "route", {route.name: getattr(route, name) for route in state.routes})


def _links(state: State) -> Iterator[Metric]:
    for name, (text, value_of) in LINK_GAUGES.items():
        gauge = GaugeMetricFamily(f"holdfast_link_{name}", text, labels=LINK_LABELS)
        for link in state.links:
            gauge.add_metric([link.name, link.neighbour, link.zone, link.mode], value_of(link))
        yield gauge


def _streams(state: State) -> Iterator[Metric]:
    for name, (text, value_of) in STREAM_GAUGES.items():
        gauge = GaugeMetricFamily(f"holdfast_stream_{name}", text, labels=["stream"])
        for stream in state.streams:
            gauge.add_metric([stream.name], value_of(stream))
        yield gauge
    for name, (text, value_of) in STREAM_COUNTERS.items():
        yield _by(f"stream_{name}", text, "stream", {one.name: int(value_of(one)) for one in state.streams})


def _multicast(state: State) -> Iterator[Metric]:
    for name, (text, value_of) in MULTICAST_GAUGES.items():
        gauge = GaugeMetricFamily(f"holdfast_multicast_{name}", text, labels=["group"])
        for group in state.multicast:
            gauge.add_metric([group.name], value_of(group))
        yield gauge
    for name, text in MULTICAST_COUNTERS.items():
        counts = {group.name: getattr(group, name) for group in state.multicast}
        yield _by(f"multicast_{name}", text, "group", counts)


def _connectors(state: State) -> Iterator[Metric]:
    if not state.connectors:
        return
    labels = ["connector", "device"]
    up = GaugeMetricFamily("holdfast_connector_up", "Whether the port of a connector is open.", labels=labels[:1])
    late = GaugeMetricFamily("holdfast_connector_late_seconds", "How late a poll of a unit was at most.", labels=labels)
    for one in state.connectors:
        up.add_metric([one.name], float(not one.problem))
        for unit in one.units:
            late.add_metric([one.name, unit.device], unit.late_most_s)
    yield from (up, late)
    commands = CounterMetricFamily(
        "holdfast_connector_commands",
        "Commands for a unit that were answered, by what the answer says was written.",
        labels=[*labels, "written"],
    )
    for one in state.connectors:
        for unit in one.units:
            for written, number in unit.commands.items():
                commands.add_metric([one.name, unit.device, written], number)
    yield commands
    for name, text in CONNECTOR_COUNTERS.items():
        family = CounterMetricFamily(f"holdfast_connector_{name}", text, labels=labels)
        for one in state.connectors:
            for unit in one.units:
                family.add_metric([one.name, unit.device], getattr(unit, name))
        yield family
