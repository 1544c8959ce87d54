"""The ``[[route]]`` tables of routes to foreign systems: with `kind` "nats", "amqp" or "sparkplug"."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from gateway.routes import NAME_BYTES_MAX, Checked, Count, NonEmpty, errors_in_filter
from host.server import parse_server
from uplink.config.keeping import errors_in_keys, keep_settings
from uplink.config.queue import STATEMENT_INTERVAL_S, QueueSettings
from uplink.config.tls import RouteTlsConfig
from uplink.foreign import names
from uplink.foreign.balance import BalanceMode, Receivers
from uplink.foreign.headers import ImportHeaders
from uplink.foreign.names import Dialect, Names, NoName
from uplink.foreign.wildcards import SubscribeMode, overlaps
from uplink.shape import ShapeConfig

WINDOW_MAX = 4096
NATS_PORTS = {"nats": 4222, "tls": 4222}
AMQP_PORTS = {"amqp": 5672, "amqps": 5671}
ENCRYPTED = ("tls", "amqps")
Qos = Annotated[int, msgspec.Meta(ge=0, le=2)]


class Address(NamedTuple):
    """Where a server is. As text it is its URL."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_address(url: str, ports: Mapping[str, int]) -> Address:
    """Returns the address that a URL names; ``ports`` are the usual ones by scheme. Raises ValueError."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if "@" in parts.netloc:
        raise ValueError("expected no user and no password in it: they are `user` and `password_file`")
    if parts.scheme not in ports or not parts.hostname or port == 0 or parts.path or parts.query or parts.fragment:
        raise ValueError(f"{url!r}, expected {' or '.join(f'{scheme}://host:port' for scheme in ports)}")
    return Address(parts.scheme, parts.hostname, port or ports[parts.scheme])


class NatsIncomingConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """Messages that a route to NATS imports, as `[[route.incoming]]`."""

    topic: str
    """The topic filter of the messages, in MQTT's form."""

    stream: NonEmpty | None = None
    """The JetStream stream that they come from, through a durable consumer: each is acknowledged when it is stored and
    synced here. Without it they come by a core subscription, which NATS does not repeat: what is published while the
    route is not connected does not come."""

    queue_group: NonEmpty | None = None
    """Shares the messages with all other members of this group; with `stream` it is the name of the consumer that they
    share. Without it the route gets all of them. EMS: `override_lb_mode`."""

    qos: Qos = 1
    """The QoS that they have here. With 0 only clients that are connected get them, and none is stored. EMS:
    `topic_import_dm`, and with `queue_group` `queue_import_dm`."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from _errors_in_pattern(values, names.NATS)
        for key in ("stream", "queue_group"):
            if (value := values.get(key)) and any(sign in value for sign in " .*>/\\\t\r\n"):
                yield key, f"{value!r}, expected a name without blanks, dots, slashes and wildcards"


class AmqpIncomingConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """Messages that a route to an AMQP broker imports, as `[[route.incoming]]`."""

    address: NonEmpty
    """The source address, such as `/queue/commands` at RabbitMQ. A durable queue keeps messages while the route is not
    connected."""

    topic: str = "#"
    """The topic filter that names of messages have to match; others are set aside."""

    qos: Qos = 1
    """The QoS that they have here. With 0 only clients that are connected get them, and none is stored."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from errors_in_filter("topic", values.get("topic", "#"))


class ForeignConfig(Checked, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What all routes to foreign systems have."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    """The route's name in the log, of at most 127 bytes, and the name of its cursor in the store, as for other
    routes."""

    servers: tuple[str, ...]
    """The servers. Whenever the route connects, it tries them in their order."""

    user: NonEmpty | None = None
    """The user name with which the route logs in. EMS: `username`."""

    password_file: NonEmpty | None = None
    """A file that contains only this user's password, on one line; its permissions are 0600 or 0640. It is read again
    for each connection. EMS: `password`."""

    tls: RouteTlsConfig | None = None
    """TLS, besides the system's authorities."""

    filters: tuple[str, ...] = ("#",)
    """The topic filters of the messages that the route exports; `[]` for a route that only imports."""

    shape: list[ShapeConfig] = msgspec.field(default_factory=list)
    """Rules that select and shape what is exported, as `[[route.shape]]`."""

    qos0: Literal["store", "drop"] = "store"
    """What becomes of messages that clients publish at QoS 0, as for other routes."""

    preserve_undelivered: Literal["never", "receivers", "always"] = "always"
    """What becomes of a message that cannot be delivered, such as one that is too large. `"always"`: it is set aside
    with its reason: what was to go out can be [seen and sent again](../how-to/next-broker.md), what came in is in the
    quarantine (`holdfast gateway quarantine`). `"receivers"`: of what was to go out only that is kept which a receiver
    has given up. `"never"`: it is dropped, and what was to go out leaves a range `rejected`. EMS:
    `preserve_gmd`."""

    start: Literal["resume", "anew"] = "resume"
    """What becomes of the messages that wait when the gateway starts. `"resume"`: they go. `"anew"`: they are dropped,
    and leave ranges `unrouted`. EMS: `gmd_file_delete`."""

    inflight_window: Annotated[int, msgspec.Meta(ge=1, le=WINDOW_MAX)] = 256
    """The most messages that are sent and not yet acknowledged."""

    retry_interval_s: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 20
    """How long the server may leave a message unacknowledged, in seconds. Then the route connects again, and sends what
    is not acknowledged."""

    max_messages: Count | None = None
    """The most messages that may wait for the route, as for other routes."""

    max_bytes: Count | None = None
    """The most bytes of these."""

    max_age_s: Count | None = None
    """The longest time in seconds since the first gateway accepted a message, as for other routes."""

    backoff_shortest_ms: Annotated[int, msgspec.Meta(ge=1)] = 250
    """The shortest wait before a new connection attempt, in milliseconds."""

    backoff_longest_ms: Annotated[int, msgspec.Meta(ge=1)] = 30_000
    """The longest wait before a new connection attempt, in milliseconds."""

    @property
    def sent(self) -> tuple[str, ...]:
        """The topic filters of the messages that the route exports."""
        return self.filters

    def queue_settings(self, _gateway: str) -> QueueSettings:
        """Returns what the route's queue goes by. It notes what the route leaves out as others do; statements of that
        are not made.
        """
        return QueueSettings(
            self.servers[0],
            self.sent,
            tuple(self.shape),
            qos0=self.qos0,
            order="strict",
            inflight_window=self.inflight_window,
            states_every_s=STATEMENT_INTERVAL_S if self.sent else 0,
            max_messages=self.max_messages,
            max_bytes=self.max_bytes,
            max_age_s=self.max_age_s,
        )

    @property
    def is_encrypted(self) -> bool:
        """Whether a server uses TLS."""
        return any(urlsplit(url).scheme in ENCRYPTED for url in self.servers)

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        if (size := len(values.get("name", "").encode())) >= NAME_BYTES_MAX:
            yield "name", f"{size} bytes, expected {NAME_BYTES_MAX - 1} at most"
        if values.get("servers") == ():
            yield "servers", "expected one server at least"
        if values.get("password_file") is not None and values.get("user", "") is None:
            yield "password_file", "there is no user"
        if values.get("filters") == () and not _tables(values):
            yield (
                "filters",
                "the route exports nothing and imports nothing: expected topic filters, or [[route.incoming]]",
            )
        for topic_filter in values.get("filters", ()):
            yield from errors_in_filter("filters", topic_filter)
        shortest_ms, longest_ms = values.get("backoff_shortest_ms"), values.get("backoff_longest_ms")
        if shortest_ms is not None and longest_ms is not None and longest_ms < shortest_ms:
            yield "backoff_longest_ms", "it is below backoff_shortest_ms"


InboxPrefix = Annotated[str, msgspec.Meta(pattern=r"^_INBOX(_[A-Za-z0-9_-]+)?\Z")]


class ImportingConfig(ForeignConfig, frozen=True, kw_only=True):
    """What routes have to systems that have names, headers, and messages for the gateway."""

    dialect: ClassVar[Dialect]
    covering: ClassVar[bool] = False
    """Whether a subscription may bring messages that match no `topic` of `[[route.incoming]]`: it covers several."""

    project: NonEmpty | None = None
    """What names there begin with, before a dot: a name space of its own. EMS: `project`."""

    local_user: NonEmpty | None = None
    """The user of the [access rules](../how-to/accounts.md#set-access-rules) (`acl`) whose rights hold for what comes
    from there: to which topics it may be published, and with which identities. Without it everything but `$SYS` may
    come."""

    export_headers: bool = True
    """Whether QoS, RETAIN flag, content type, response topic, correlation data, payload format and expiry go as
    headers. The identity always goes. EMS: `export_headers`."""

    export_properties: bool = False
    """Whether user properties go as headers. EMS: `export_properties`."""

    import_headers: ImportHeaders = "none"
    """Which headers become properties here: `"none"`, `"type"` (only the header with the content type) or `"all"`. The
    identity always comes. EMS: `import_ss_headers`."""

    until: Literal["acknowledgement", "receipt"] = "acknowledgement"
    """Until when the gateway keeps a message, as for other routes. The [receipts](receipts.md) come another way
    ([how](../how-to/until-the-table.md#routes-to-nats-and-rabbitmq))."""

    keep_max_bytes: Count | None = None
    """The most bytes of what is kept for its receipt, as for other routes."""

    keep_max_age_s: Count | None = None
    """The longest time in seconds for which a message is kept for its receipt, as for other routes."""

    resend_after_s: Count | None = None
    """How much later than a message another one has to come that shows that the first was passed over, as for other
    routes."""

    receipt_key: NonEmpty | None = None
    """The public key of the receipts, as for other routes."""

    @property
    def names(self) -> Names:
        """What translates the route's names."""
        return Names(self.dialect, self.project or "")

    @property
    def receivers_by(self) -> Receivers:
        """What shares the route's messages among its receivers."""
        return Receivers("none", ())

    @property
    def wanted(self) -> list[tuple[str, int]]:
        """The topic filters of what the route imports, each with the QoS that its messages have here."""
        raise NotImplementedError

    def queue_settings(self, gateway: str) -> QueueSettings:
        """Returns what the route's queue goes by. Receipts come another way, and the gateway retains them."""
        return replace(super().queue_settings(gateway), keep=keep_settings(self, hears_receipts=False))

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from super().errors_in(values)
        yield from errors_in_keys(values)
        if values.get("until", "acknowledgement") == "receipt" and values.get("filters") == ():
            yield "until", "a route that exports nothing keeps nothing"


class NatsConfig(ImportingConfig, tag_field="kind", tag="nats", frozen=True, kw_only=True):
    """A route to NATS, core or JetStream. See [Foreign transports](foreign.md#nats)."""

    dialect: ClassVar[Dialect] = names.NATS
    covering: ClassVar[bool] = True

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    """The servers, as `nats://host:port` or, with TLS, `tls://host:port`; the port is 4222 where it is left out.
    Whenever the route connects, it tries them in their order. EMS: `server_names`."""

    credentials: NonEmpty | None = None
    """A NATS credentials file, with a user's JWT and key, instead of `user`. It names the account too."""

    delivery_mode: Literal["best_effort", "ordered", "some", "all"] = "some"
    """When a message is acknowledged. `"best_effort"` and `"ordered"` publish by core NATS, and take a server's PONG
    that comes behind messages for their acknowledgement: the server has had them, and keeps nothing. With `"ordered"`
    nothing goes before the PONG for what went before has come. `"some"`: JetStream has acknowledged the message.
    `"all"`: each of the `receivers` has acknowledged it as well. EMS: `delivery_mode`."""

    inbox_prefix: InboxPrefix = "_INBOX"
    """What the subjects begin with at which the route is answered: `_INBOX`, or `_INBOX_` and a name of letters,
    digits, `-` and `_`. With a prefix that no other user may publish to, no other user can acknowledge messages."""

    stream: NonEmpty | None = None
    """The JetStream stream that takes the messages; the server refuses messages that another stream would take. It is
    needed with `delivery_mode = "all"` and for `balance`."""

    receivers: tuple[NonEmpty, ...] = ()
    """The names of the JetStream consumers that receive the messages."""

    balance: BalanceMode = "none"
    """How messages are shared among the `receivers`: the name of the chosen one is the last token of the subject.
    `"none"`: each message is for all of them, and no name is added. `"round_robin"`: one after the other. `"weighted"`:
    the one with the fewest messages that it has not acknowledged. `"sorted"`: the lowest name among the present ones.
    EMS: `lb_mode`."""

    subscribe_mode: SubscribeMode = "cover"
    """What happens where topic filters of `incoming` match the same topic name, so that a message would come twice.
    `"exact"`: the gateway does not start with them. `"cover"`: the route subscribes to the least filters that cover
    them without an overlap. `"all"`: it subscribes to each as it is. EMS: `subscribe_mode`."""

    incoming: list[NatsIncomingConfig] = msgspec.field(default_factory=list)
    """What the route imports, as `[[route.incoming]]`."""

    @property
    def receivers_by(self) -> Receivers:
        return Receivers(self.balance, self.receivers)

    @property
    def wanted(self) -> list[tuple[str, int]]:
        return [(one.topic, one.qos) for one in self.incoming]

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from super().errors_in(values)
        yield from _errors_in_servers(values, NATS_PORTS)
        project = values.get("project")
        if project and any(
            not part or names.BLANK.search(part) or set(part) & set("*>") for part in project.split(".")
        ):
            yield "project", f"{project!r}, expected tokens of a subject, without wildcards, between dots"
        if values.get("credentials") is not None and values.get("user") is not None:
            yield "credentials", "there is a user already"
        yield from _errors_in_receivers(values)
        if values.get("subscribe_mode") == "exact":
            yield from _errors_in_overlaps([one.topic for one in _incoming(values)])
        elif values.get("subscribe_mode") == "cover":
            yield from _errors_in_sources(_incoming(values))


class AmqpConfig(ImportingConfig, tag_field="kind", tag="amqp", frozen=True, kw_only=True):
    """A route to a broker that speaks AMQP 1.0, such as RabbitMQ with its plugin. See [Foreign
    transports](foreign.md#amqp-10)."""

    dialect: ClassVar[Dialect] = names.AMQP

    servers: tuple[str, ...] = ("amqp://127.0.0.1:5672",)
    """The servers, as `amqp://host:port` or, with TLS, `amqps://host:port`; the ports are 5672 and 5671 where they are
    left out. Whenever the route connects, it tries them in their order."""

    address: NonEmpty
    """The target address to which messages go: at RabbitMQ `/queue/NAME`, which makes a durable queue where there is
    none. Their subject is the topic name in AMQP's form, which is the routing key at `/exchange/NAME`; RabbitMQ
    accepts, and drops, what such an exchange routes to no queue."""

    virtual_host: NonEmpty | None = None
    """The virtual host: at RabbitMQ `/` without it."""

    incoming: list[AmqpIncomingConfig] = msgspec.field(default_factory=list)
    """What the route imports, as `[[route.incoming]]`."""

    @property
    def wanted(self) -> list[tuple[str, int]]:
        return [(one.topic, one.qos) for one in self.incoming]

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from super().errors_in(values)
        yield from _errors_in_servers(values, AMQP_PORTS)
        addresses = [one.address for one in _incoming(values)]
        for number, address in enumerate(addresses):
            if address in addresses[:number]:
                yield f"incoming[{number}].address", f"two sources have the address {address!r}"


class SparkplugConfig(ForeignConfig, tag_field="kind", tag="sparkplug", frozen=True, kw_only=True):
    """A route that shows the gateway's devices to hosts of Sparkplug B, over their MQTT broker. It is
    [no custody](../how-to/sparkplug.md#no-custody)."""

    servers: tuple[str, ...] = ("mqtt://127.0.0.1:1883",)
    """The MQTT brokers of the hosts, as `mqtt://host:port` or, with TLS, `mqtts://host:port`; the ports are 1883 and
    8883 where they are left out. Whenever the route connects, it tries them in their order."""

    group: NonEmpty
    """The Group ID, without `/`, `+` and `#`."""

    edge_node: NonEmpty | None = None
    """The Edge Node ID, without `/`, `+` and `#`; without it the gateway's name."""

    silent_s: Annotated[int, msgspec.Meta(ge=1)] = 3600
    """After how many seconds without a message hosts are told that a device is dead: more than the longest interval of
    your devices."""

    @property
    def is_encrypted(self) -> bool:
        return any(parse_server(url).is_encrypted for url in self.servers)

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from super().errors_in(values)
        for key in ("group", "edge_node"):
            if (value := values.get(key)) and (set(value) & set("/+#") or not value.isprintable()):
                expected = "a name that can be shown, without '/', '+' and '#' [Sparkplug 3.0, section 4]"
                yield key, f"{value!r}, expected {expected}"
        servers = []
        for url in values.get("servers", ()):
            try:
                servers.append(parse_server(url, ("mqtt", "mqtts")))
            except ValueError as error:
                yield "servers", str(error)
        if values.get("tls") is not None and servers and not any(one.is_encrypted for one in servers):
            yield "tls", "no server uses TLS: expected mqtts://"


def _tables(values: dict[str, Any]) -> list[Any]:
    """The tables of `incoming`, with None for each that is wrong."""
    found = values.get("incoming")
    return found if isinstance(found, list) else []


def _incoming(values: dict[str, Any]) -> list[Any]:
    """The tables of `incoming` that are right."""
    return [one for one in _tables(values) if one is not None]


def _errors_in_servers(values: dict[str, Any], ports: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    schemes = set()
    for url in values.get("servers", ()):
        try:
            schemes.add(parse_address(url, ports).scheme)
        except ValueError as error:
            yield "servers", str(error)
    if len(schemes) > 1:
        yield "servers", "some use TLS and some do not"
    if values.get("tls") is not None and schemes and not schemes & set(ENCRYPTED):
        yield "tls", f"no server uses TLS: expected {next(one for one in ports if one in ENCRYPTED)}://"


def _errors_in_receivers(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    mode, balance, receivers = values.get("delivery_mode"), values.get("balance"), values.get("receivers", ("",))
    if mode == "all" and not receivers:
        yield "delivery_mode", '"all" needs receivers'
    if balance not in (None, "none") and not receivers:
        yield "balance", f'"{balance}" needs receivers'
    is_core = mode in ("best_effort", "ordered")
    if values.get("stream", "") is None and (mode == "all" or (balance in ("weighted", "sorted") and not is_core)):
        yield "stream", "it is missing: the receivers are consumers of it"
    if is_core and values.get("stream"):
        yield "stream", f'"{mode}" does not publish to JetStream'
    if is_core and balance == "weighted":
        yield "balance", f'"weighted" counts what consumers of JetStream have not acknowledged, and "{mode}" has none'
    for receiver in receivers:
        if any(sign in receiver for sign in " .*>/\\\t\r\n"):
            yield "receivers", f"{receiver!r}, expected a name without blanks, dots, slashes and wildcards"


def _errors_in_overlaps(filters: Sequence[str]) -> Iterator[tuple[str, str]]:
    for place, first, second in overlaps(filters):
        text = (
            f"{second!r} and {first!r} match the same topic names, so that messages would come twice [subscribe_mode]"
        )
        yield f"incoming[{place}].topic", text


def _errors_in_sources(incoming: Sequence[NatsIncomingConfig]) -> Iterator[tuple[str, str]]:
    """Filters of one source are joined; where those of two sources overlap, nothing can keep messages apart."""
    for place, one in enumerate(incoming):
        for other in incoming[:place]:
            is_same = (one.stream, one.queue_group) == (other.stream, other.queue_group)
            if not is_same and next(overlaps([other.topic, one.topic]), None):
                text = f"{one.topic!r} and {other.topic!r} match the same topic names, and come from two sources"
                yield f"incoming[{place}].topic", text


def _errors_in_pattern(values: dict[str, Any], dialect: Dialect) -> Iterator[tuple[str, str]]:
    topic_filter = values.get("topic", "#")
    found = list(errors_in_filter("topic", topic_filter))
    yield from found
    if not found:
        try:
            Names(dialect).patterns_of(topic_filter)
        except NoName as error:
            yield "topic", str(error)
