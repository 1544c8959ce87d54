"""The keys of a route to an MQTT broker: a ``[[route]]`` table without ``kind``."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from gateway.links import LinkSettings
from gateway.routes import NAME_BYTES_MAX, Checked, Count, Hops, Mode, NonEmpty, SelectConfig, ZoneName
from host.server import parse_server
from uplink.config.keeping import KeepSettings, errors_in_keys, keep_settings
from uplink.config.queue import INFLIGHT_WINDOW_MAX, STATEMENT_INTERVAL_S, QueueNeighbour, QueueSettings
from uplink.config.schedule import check_window
from uplink.config.tls import RouteTlsConfig
from uplink.shape import ShapeConfig
from wire.bulk.column_batch import MESSAGES_MAX
from wire.errors import WireError
from wire.receipt import RECEIPT_TOPICS
from wire.topics import check_topic_filter, check_topic_name, parse_shared

BATCH_KEYS = ("batch_topic", "batch_max_messages", "batch_max_bytes", "batch_max_age_ms")
RECEIPTS = RECEIPT_TOPICS + "#"
STATEMENTS_IN = 3  # at least, in the time after which others send again what this route left out
BATCH_BYTES_MAX = 8 << 20
BATCH_MESSAGES, BATCH_BYTES, BATCH_AGE_MS = 500, 256 << 10, 1000  # where the configuration does not say


class RouteNeighbourConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Makes the other end of a route a neighbour: the route sends what the neighbour wants, and receives what is wanted
    here. Another gateway tells what it wants; an ordinary broker gets SUBSCRIBEs. See [Networks of
    gateways](network.md)."""

    name: NonEmpty | None = None
    """The name of the gateway at the other end; the route checks it. Leave it out for an ordinary broker, such as
    mosquitto."""

    fallback_names: tuple[NonEmpty, ...] = ()
    """The names of the gateways at the `fallbacks` of the route, as far as these are others than `name`."""

    zone: ZoneName = "default"
    """The zone of the link."""

    hops: Hops = "multi"
    """`"multi"` or `"one"`, as for `[[neighbour]]`."""

    mode: Mode = "active-active"
    """What happens while the neighbour is not connected, as for `[[neighbour]]`."""

    streams: tuple[NonEmpty, ...] | None = None
    """The [streams](../how-to/streams.md#streams-of-neighbours) that the link carries besides the default one. Without
    it these are all streams of this gateway. Streams that the neighbour lacks are not carried."""


class RouteConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """A route to another broker: the messages that it sends there, and how it connects.

    With `kind = "nats"`, `"amqp"` or `"sparkplug"` it leads to another system, and has the keys of a table below.
    """

    name: Annotated[str, msgspec.Meta(min_length=1)]
    """The route's name in the log, of at most 127 bytes, and the name of its cursor in the store: if you rename a
    route, it begins anew. Its client identifier is the gateway's name, `-` and this name."""

    broker: str
    """The broker to which the messages go: `mqtt://host` or `mqtt://host:port`, by WebSocket `ws://host:port/path`,
    where the path is `/mqtt` if it is left out; with TLS the same with `mqtts` or `wss`. The ports are 1883, 80, 8883
    and 443 where they are left out. `unix:///path` is a Unix socket on the same machine. The broker speaks MQTT 5 or
    3.1.1, which the route finds out; over 3.1.1 no identities travel. Another Holdfast gateway accepts the messages
    if a [rule](../how-to/accounts.md#let-a-client-forward-others-messages) allows `identify` for this route's
    `user`."""

    stream: str = ""
    """The [stream](../how-to/streams.md) whose messages the route sends, and into which it receives, all without the
    stream's prefix: the name of a `[[stream]]`. Without it that is the default stream."""

    fallbacks: tuple[str, ...] = ()
    """More servers, as URLs like `broker`. Whenever the route connects, it tries `broker` first, and then these in
    their order. While it is connected to one of these, it looks every five minutes whether an earlier one can be
    reached, and returns to it. If `broker` uses TLS, these do too. On another server than before the session begins
    anew, so that what was in flight may arrive twice."""

    user: NonEmpty | None = None
    """The user name with which the route logs in."""

    password_file: NonEmpty | None = None
    """A file that contains only this user's password, on one line. It is read again for each connection. Others may
    neither read nor change it: its permissions are 0600 or 0640."""

    tls: RouteTlsConfig | None = None
    """TLS for `mqtts://` and `wss://`, besides the system's authorities."""

    filters: tuple[str, ...] | None = None
    """The topic filters of the messages that the route sends, whether another client wants them or not. Without it
    these are all messages, `["#"]`, but none where the other end is a neighbour: then those go that the neighbour
    wants. The route sends each at its QoS, or at the highest QoS that the broker supports. Messages of QoS 2 arrive
    exactly once as long as the broker keeps the route's session. When a route to an MQTT broker begins, or gets a
    filter that no former one covers, it also sends the [retained messages](../how-to/next-broker.md#retained-messages)
    that exist already."""

    shape: list[ShapeConfig] = msgspec.field(default_factory=list)
    """Rules that select and shape the messages that the filters match, as `[[route.shape]]`. What they leave out leaves
    ranges `selected` in the [store](store.md#what-was-dropped)."""

    direction: Literal["out", "in", "both"] = "out"
    """`"out"`: the route sends. `"in"`: it receives the messages to which it
    [subscribes](../how-to/next-broker.md#commands-come-down) at the broker. `"both"`: it does both. What comes down is
    stored and synced before it is acknowledged, at QoS 2 exactly once, and keeps its identity. It does not go up again
    over the same route. A route that receives needs a broker that speaks MQTT 5."""

    neighbour: RouteNeighbourConfig | None = None
    """Makes the other end a [neighbour](network.md)."""

    outgoing: list[SelectConfig] = msgspec.field(default_factory=list)
    """Conditions on the messages that the route sends, as `[[route.outgoing]]`."""

    incoming: list[SelectConfig] = msgspec.field(default_factory=list)
    """Conditions on the messages that the route receives, as `[[route.incoming]]`. A gateway at the other end evaluates
    them, so that what does not pass does not come. What comes from an ordinary broker is looked at on arrival."""

    subscribe: tuple[str, ...] = ()
    """The topic filters of the messages that the route receives, for the directions `"in"` and `"both"`. No two of
    them may match the same topic name: some brokers, such as mosquitto, send a message once for each filter."""

    local_user: NonEmpty | None = None
    """The user of the [access rules](../how-to/accounts.md#set-access-rules) (`acl`) whose rights hold for what comes
    down: to which topics it may be published, and with which identities. Without it everything but `$SYS` may come.
    mosquitto has the same for its bridges: `local_username`."""

    qos0: Literal["store", "online", "drop"] = "store"
    """What becomes of messages that clients publish at QoS 0. `"store"`: the gateway stores them if the filters match,
    and the route sends them at QoS 1. Connected local subscribers still get them at QoS 0 at once, and no session keeps
    them. If the store, the publisher's quota or what a `[[topic]]` without `"discard_old"` may have is full, such
    a message is dropped for the route (`rejected`), since its publisher cannot be told. `"online"`: the route sends
    them at QoS 0 while it is connected, as it always does with messages that a neighbour wants. `"drop"`: it does not
    send them."""

    order: Literal["strict", "live_first"] = "strict"
    """In which order messages go. `"strict"`: as they were stored. `"live_first"`: fresh messages go first, and what
    waited for more than about two seconds becomes the backfill, which goes behind them in its own order, without
    swamping the broker: the fewer messages of it are in flight, the slower the broker acknowledges, and a quarter of
    its Receive Maximum is left to fresh messages. From each origin the messages of a lane arrive in their order.
    After a change to `"strict"` the backfill goes first, until nothing is left of it."""

    backfill_weight: Annotated[int, msgspec.Meta(ge=0, le=90)] = 20
    """The share of the backfill, in percent, of the messages that go while fresh ones wait too. While none waits, the
    backfill has all that the broker takes."""

    backfill_rate: Count | None = None
    """The most messages of the backfill in a second. Without it there is no limit."""

    inflight_window: Annotated[int, msgspec.Meta(ge=1, le=INFLIGHT_WINDOW_MAX)] = 1000
    """The most messages in flight: sent and not yet acknowledged."""

    framing: Literal["publish", "batch"] = "publish"
    """How messages travel: `"publish"` sends each in a PUBLISH of its own. `"batch"` sends many in one, as a [column
    batch](batch.md), which takes far fewer bytes, and which only landers understand. They have to subscribe to
    `batch_topic` too. The broker has to speak MQTT 5. Retained messages still go by themselves, so that the broker can
    retain them, and so do messages that are too large for a batch. A batch goes at the highest QoS of its messages.
    `inflight_window` then counts batches, and at most 20 are in flight."""

    batch_topic: NonEmpty | None = None
    """The topic name of the batches, `holdfast/batch/GATEWAY/ROUTE` if it is left out."""

    batch_max_messages: Annotated[int, msgspec.Meta(ge=1, le=MESSAGES_MAX)] | None = None
    """The most messages in a batch, 500 if it is left out. A full batch leaves at once."""

    batch_max_bytes: Annotated[int, msgspec.Meta(ge=1, le=BATCH_BYTES_MAX)] | None = None
    """The most bytes of payload, topic name and properties in a batch, before compression, unless a single message has
    more; 262,144 if it is left out. A full batch leaves at once."""

    batch_max_age_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How long a message waits for others before its batch leaves, in milliseconds; 1000 if it is left out."""

    max_messages: Count | None = None
    """The most messages that may wait for the route. Beyond it the oldest are dropped, which leaves a [range in the
    store](store.md#what-was-dropped). Without it only the limit of `[store]` applies."""

    max_bytes: Count | None = None
    """The most bytes of these, counted as for `[queue]`."""

    needs_subscriber: bool = True
    """Whether a message waits that no client at the broker has subscribed to: the broker acknowledges it with reason
    code 0x10, and keeps no copy. With `false` the route takes such an acknowledgement for success."""

    retry_interval_s: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 20
    """How long the broker may leave a message unacknowledged, in seconds. Then the route connects again and sends what
    is not acknowledged [MQTT-4.4.0-1]. The time begins when the other end of the TCP connection has the message; until
    then it begins anew as long as the line takes anything, so that a large message goes over a slow line."""

    max_age_s: Count | None = None
    """The longest time in seconds since the first gateway accepted a message, by this gateway's clock. Older messages
    that wait are dropped, which leaves a range `expired`."""

    max_messages_per_origin: Count | None = None
    """The most messages of one [origin](wire.md#identity) that may wait for the route. Beyond it the oldest of this
    origin are dropped, when the route comes to them; they do not count for `max_messages` and `max_bytes`. So an origin
    that sends too much does not push out the messages of others."""

    max_bytes_per_origin: Count | None = None
    """The most bytes of these, counted as for `[queue]`."""

    statement_interval_s: Annotated[int, msgspec.Meta(ge=0, le=86_400)] = STATEMENT_INTERVAL_S
    """The time in seconds between two [statements](route-numbers.md#statements) of what the route has handed on and
    left out. With 0 it makes none, and the tables take [all that the route leaves out](tables.md#gaps) for missing. The
    broker has to let the route [publish them](../how-to/next-broker.md#statements); if it does not take one, none goes
    there for a day, also over restarts. A route that only receives makes none. With `until = "receipt"` a third of
    `resend_after_s` is the most."""

    until: Literal["acknowledgement", "receipt"] = "acknowledgement"
    """Until when the gateway keeps a message. `"acknowledgement"`: until the broker has acknowledged it. `"receipt"`:
    until a [receipt](receipts.md) from the tables says that it is settled, and what the tables have passed over
    [goes again](../how-to/until-the-table.md). The route then also receives what is published to `hf/receipt/#`, and
    needs statements. To a neighbour it holds for what `filters` match, and not for what is wanted there besides."""

    keep_max_bytes: Count | None = None
    """The most bytes of what is kept for its receipt, as they are in the store. Beyond it the oldest are given up,
    which leaves ranges `unproven`. Without it there is no other limit than that of the store, which gives up what is
    kept before it refuses or drops anything."""

    keep_max_age_s: Count | None = None
    """The longest time in seconds since the first gateway accepted a message for which it is kept for its receipt; 30
    days if it is left out."""

    resend_after_s: Count | None = None
    """How much later than a message another one has to come into the store so that the first counts as passed over once
    the other is settled, in seconds; 180 if it is left out. Landers and jobs may take messages in another order by no
    more than that."""

    receipt_key: NonEmpty | None = None
    """The public key, in 64 hexadecimal digits, with whose other half the [receipts](receipts.md#signature) are signed,
    as `holdfast cloud receipts --new-signing-key` prints it. With it no other receipts count. It needs the extra
    `receipts`."""

    windows: tuple[str, ...] = ()
    """When the route may be connected, as cron expressions: minute, hour, day of month, month and day of week, in the
    machine's local time. It is connected in each minute that one of them matches: `* 1-4 * * *` is from 1:00 to 4:59.
    Without any it always is."""

    bytes_per_day: Count | None = None
    """How many bytes the route may send and receive in a day of local time. The bytes of MQTT and WebSocket count, not
    those of TLS, TCP and IP. The route checks this each second, so that it may exceed it by what goes through in that
    time. Without it the bytes are not counted."""

    when_spent: Literal["wait", "go_on"] = "wait"
    """What the route does when the bytes of the day are spent: `"wait"` ends the connection and stores until the next
    day; `"go_on"` logs a warning once, and sends on."""

    keep_alive_s: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 30
    """The longest silence, in seconds, before the link is tested [MQTT-3.1.2-20]."""

    backoff_shortest_ms: Annotated[int, msgspec.Meta(ge=1)] = 250
    """The shortest wait before a new connection attempt, in milliseconds."""

    backoff_longest_ms: Annotated[int, msgspec.Meta(ge=1)] = 30_000
    """The longest wait before a new connection attempt, in milliseconds."""

    @property
    def is_encrypted(self) -> bool:
        """Whether a server uses TLS."""
        return any(parse_server(url).is_encrypted for url in (self.broker, *self.fallbacks))

    @property
    def sent(self) -> tuple[str, ...]:
        """The topic filters of the messages that the route sends."""
        if self.direction == "in":
            return ()
        return (() if self.neighbour else ("#",)) if self.filters is None else self.filters

    @property
    def states_every_s(self) -> int:
        """The time between two statements, 0: none are made. A route that sends nothing cannot send statements.

        Where gateways wait for receipts, those before this one are to know what it leaves out before they take it for
        passed over.
        """
        interval_s = self.statement_interval_s if self.sent or self.neighbour else 0
        return interval_s if self.keep is None else min(interval_s, max(1, self.keep.resend_after_s // STATEMENTS_IN))

    def client_id(self, gateway: str) -> str:
        """Returns its client identifier at the broker, which is also the name of the link to a neighbour."""
        return f"{gateway}-{self.name}"

    def link_settings(self, gateway: str) -> LinkSettings:
        """Returns the settings of the link to its neighbour, as the gateway of this name has them."""
        one = self.neighbour or RouteNeighbourConfig()
        return LinkSettings(gateway, one.zone, one.hops, one.mode, incoming=tuple(self.incoming))

    @property
    def receives(self) -> bool:
        """Whether the route has subscriptions at the broker."""
        return bool(self.subscribed) or self.neighbour is not None

    @property
    def subscribed(self) -> tuple[str, ...]:
        """The topic filters of the messages that the route receives, receipts among them where it waits for these."""
        is_there = self.until != "receipt" or RECEIPTS in self.subscribe
        return self.subscribe if is_there else (*self.subscribe, RECEIPTS)

    @property
    def keep(self) -> KeepSettings | None:
        """How long the route keeps what is acknowledged, None: no longer."""
        return keep_settings(self, hears_receipts=True)

    def queue_settings(self, gateway: str) -> QueueSettings:
        """Returns what the route's queue goes by, at the gateway of this name."""
        neighbour, batch_limits = None, None
        if self.neighbour is not None:
            side = self.link_settings(gateway).side(self.client_id(gateway))
            is_gateway = self.neighbour.name is not None
            neighbour = QueueNeighbour(side, is_gateway, self.neighbour.mode == "active-passive")
        if self.framing == "batch":
            age_ms = BATCH_AGE_MS if self.batch_max_age_ms is None else self.batch_max_age_ms
            batch_limits = self.batch_max_messages or BATCH_MESSAGES, self.batch_max_bytes or BATCH_BYTES, age_ms
        return QueueSettings(
            self.broker,
            self.sent,
            tuple(self.shape),
            tuple(self.outgoing),
            neighbour,
            self.qos0,
            self.order,
            self.backfill_weight,
            self.backfill_rate,
            self.inflight_window,
            self.batch_topic,
            batch_limits,
            self.states_every_s,
            self.needs_subscriber,
            self.max_messages,
            self.max_bytes,
            self.max_age_s,
            self.max_messages_per_origin,
            self.max_bytes_per_origin,
            self.keep,
        )

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        if (size := len(values.get("name", "").encode())) >= NAME_BYTES_MAX:
            yield "name", f"{size} bytes, expected {NAME_BYTES_MAX - 1} at most"
        if "broker" in values:
            yield from _errors_in_servers(
                values["broker"], values.get("fallbacks", ()), has_tls=values.get("tls") is not None
            )
        if values.get("password_file") is not None and values.get("user", "") is None:
            yield "password_file", "there is no user"
        yield from _errors_in_filters(values)
        yield from _errors_in_framing(values)
        yield from _errors_in_unused(values)
        yield from _errors_in_keeping(values)
        for window in values.get("windows", ()):
            try:
                check_window(window)
            except ValueError as error:
                yield "windows", str(error)
        shortest_ms, longest_ms = values.get("backoff_shortest_ms"), values.get("backoff_longest_ms")
        if shortest_ms is not None and longest_ms is not None and longest_ms < shortest_ms:
            yield "backoff_longest_ms", "it is below backoff_shortest_ms"


def _errors_in_filters(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key in ("filters", "subscribe"):
        for topic_filter in values.get(key) or ():
            try:
                check_topic_filter(topic_filter)
            except WireError as error:
                yield key, str(error)
    for topic_filter in values.get("filters") or ():
        if parse_shared(topic_filter)[0] is not None:
            yield "filters", f"{topic_filter!r}: expected a topic filter without $share"
    subscribe = values.get("subscribe", ())
    for place, topic_filter in enumerate(subscribe):
        if parse_shared(topic_filter)[0] is not None:
            yield "subscribe", f"{topic_filter!r}: the route's own messages would come back over a shared subscription"
        if other := next((one for one in subscribe[:place] if _overlap(one, topic_filter)), None):
            text = (
                f"{topic_filter!r} and {other!r} match the same topic names, and a broker may send a message for each"
            )
            yield "subscribe", text
        if topic_filter.partition("/")[0] == "$SYS":
            yield "subscribe", f"{topic_filter!r}: the gateway has topics of its own below $SYS"
    direction = values.get("direction", "out")
    if direction != "in" and values.get("filters") == () and values.get("neighbour") is None:
        yield "filters", f'"{direction}" needs topic filters, as the route sends'
    if values.get("neighbour") is not None:
        if direction != "out":
            yield "direction", "a route to a neighbour sends and receives: expected no direction"
        if values.get("framing", "publish") != "publish":
            yield "framing", 'a neighbour does not read batches: expected "publish"'
    elif direction == "out" and values.get("subscribe"):
        yield "subscribe", 'it needs direction = "in" or "both"'
    elif direction != "out" and not values.get("subscribe"):
        yield "direction", f'"{direction}" needs topic filters in subscribe'


def _overlap(first: str, second: str) -> bool:
    """Whether a topic name matches both topic filters."""
    if first.startswith("$") != second.startswith("$"):
        return False  # no wildcard at the first level matches such a name [MQTT-4.7.2-1]
    levels, others = first.split("/"), second.split("/")
    for level, other in zip(levels, others, strict=False):
        if "#" in (level, other):
            return True
        if level != other and "+" not in (level, other):
            return False
    shorter = min(len(levels), len(others))
    longer = max(levels, others, key=len)[shorter:]
    if longer == ["#"] and shorter == 1 and "" in (levels[0], others[0]):
        return False  # only "" would match "/#" and "+", and no topic name is empty [MQTT-4.7.3-1]
    return longer in ([], ["#"])  # "a/#" matches "a" too


def _errors_in_framing(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if values.get("framing", "publish") == "publish":
        for key in BATCH_KEYS:
            if values.get(key) is not None:
                yield key, 'it needs framing = "batch"'
    if values.get("batch_topic"):
        try:
            check_topic_name(values["batch_topic"])
        except WireError as error:
            yield "batch_topic", str(error)


def _errors_in_keeping(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from errors_in_keys(values)
    if values.get("until", "acknowledgement") != "receipt":
        return
    if values.get("neighbour") is not None:
        if not values.get("filters"):
            yield "until", "a route to a neighbour keeps what its filters match: expected filters"
    elif values.get("direction", "out") == "in":
        yield "until", "a route that sends nothing keeps nothing"
    if values.get("statement_interval_s", STATEMENT_INTERVAL_S) == 0:
        yield "statement_interval_s", 'a route with until = "receipt" makes statements: expected more than 0'
    for one in values.get("subscribe") or ():
        if _overlap(RECEIPTS, one) and one not in ("#", "hf/#", RECEIPTS):
            yield "subscribe", f"{one!r} matches some receipts: name {RECEIPTS!r} as a whole"


def _errors_in_unused(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What is set, and would have no effect."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(RouteConfig)}
    if values.get("order", "strict") == "strict":
        for key in ("backfill_rate", "backfill_weight"):
            if values.get(key, defaults[key]) != defaults[key]:
                yield key, 'it needs order = "live_first"'
    if values.get("bytes_per_day") is None and values.get("when_spent", "wait") != "wait":
        yield "when_spent", "it needs bytes_per_day"


def _errors_in_servers(url: str, fallbacks: tuple[str, ...], *, has_tls: bool) -> Iterator[tuple[str, str]]:
    needs_tls = "there is a table tls" if has_tls else ""
    for key, one in (("broker", url), *(("fallbacks", one) for one in fallbacks)):
        try:
            server = parse_server(one)
        except ValueError as error:
            yield key, str(error)
        else:
            if needs_tls and not server.is_encrypted:
                yield key, f"{one!r}, expected mqtts:// or wss:// as {needs_tls}"
            if key == "broker" and server.is_encrypted and not has_tls:
                needs_tls = "broker has it"
