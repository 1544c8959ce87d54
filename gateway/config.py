"""What may stand in the gateway's configuration file, and what it means."""

from typing import Annotated, Literal

import msgspec

TCP_PORT_MAX = 65_535
NAME_BYTES_MAX = 128
"""Of the gateway's name: a route's client identifier has both names, and is within ``wire.identity.NAME_BYTES_MAX``."""

NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
TcpPortNumber = Annotated[int, msgspec.Meta(ge=0, le=TCP_PORT_MAX)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class TlsConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """TLS on a listener, 1.2 or later. The files are read again on SIGHUP; clients stay connected."""

    certificate: NonEmpty
    """The gateway's certificate with those between it and the root: a PEM file."""

    key: NonEmpty
    """The certificate's private key, not encrypted: a PEM file."""

    client_ca: NonEmpty | None = None
    """Certificates of the authorities that sign clients: a PEM file. With it each client has to show a certificate, and
    is the user whom that names: it needs no account."""

    client_crl: NonEmpty | None = None
    """What these authorities have revoked: a PEM file of revocation lists, that of a client's own authority among them.
    One that is out of date lets nobody in. With a list of each authority in `client_ca`, and of each that signed one of
    these, authorities between are checked too, and each of them needs a list; otherwise only clients' certificates are,
    and one between that is revoked still brings its clients in. Names are compared byte by byte."""

    user_from: Literal["common_name", "dns", "uri", "email"] = "common_name"
    """Where a client's certificate names the user: its subject's common name, or the subject alternative name of that
    type. A certificate without it, or with several, is refused."""

    def __post_init__(self) -> None:
        if self.client_ca is None and self.client_crl is not None:
            raise ValueError("client_crl: there is no client_ca, so no client shows a certificate")
        if self.client_ca is None and self.user_from != "common_name":
            raise ValueError("user_from: there is no client_ca, so no client shows a certificate")


class TcpConfig(msgspec.Struct, tag_field="kind", tag="tcp", forbid_unknown_fields=True, frozen=True):
    """A TCP port on which clients connect. A port that is in use ends the start with its address and exit code 2."""

    host: NonEmpty = "127.0.0.1"
    """The address to listen on. `"::"` takes IPv4 and IPv6, `"0.0.0.0"` IPv4 alone; a name takes all its addresses."""

    port: TcpPortNumber = 1883
    """The TCP port; 0 takes one that is free. With TLS 8883 is usual."""

    allow_anonymous: bool = False
    """Says in words that whoever reaches this address may connect without an account. An address that is not loopback
    does not start without it, `accounts` or `tls.client_ca`. Where there are accounts and this is false, everybody has
    to log in, on loopback too."""

    tls: TlsConfig | None = None
    """Encrypts what goes over this port."""


class WebSocketConfig(msgspec.Struct, tag_field="kind", tag="websocket", forbid_unknown_fields=True, frozen=True):
    """A TCP port on which clients connect over WebSocket, at `/mqtt`, with the subprotocol `mqtt`."""

    host: NonEmpty = "127.0.0.1"
    """The address to listen on, as above."""

    port: TcpPortNumber = 8083
    """The TCP port; 0 takes one that is free."""

    allow_anonymous: bool = False
    """Whoever reaches this address may connect without an account, as above."""

    tls: TlsConfig | None = None
    """Encrypts what goes over this port (`wss`)."""

    origins: list[str] = []
    """The web pages that may connect, say `"https://dashboard.example.org"`, besides those that come from the same host
    as they connect to; `"*"` is all. Without TLS such a host is an address, `localhost` or the machine's own name (with
    `.local` or without), as any other name may be somebody else's that leads here. A browser lets any page of any site
    try, with the network of its user. Clients that are no browsers are not asked."""


class UnixConfig(msgspec.Struct, tag_field="kind", tag="unix", forbid_unknown_fields=True, frozen=True):
    """A Unix socket: for clients on the same machine, whom the file system lets in."""

    path: NonEmpty
    """The socket's path. A relative one starts at the configuration file's folder."""

    mode: Annotated[int, msgspec.Meta(ge=0, le=0o777)] = 0o660
    """The socket's permissions: who may write to it may connect. TOML writes octal numbers as `0o660`."""

    allow_anonymous: bool = False
    """Whoever may open the socket needs no account even where there are `accounts`."""


class SerialConfig(msgspec.Struct, tag_field="kind", tag="serial", forbid_unknown_fields=True, frozen=True):
    """A serial line with one device at its other end; one table for each port. A port that is not there, or vanishes,
    is reported once and tried again for ever."""

    device: NonEmpty
    """The path of the serial port. One below `/dev/serial/by-id` stays the same when ports are plugged in another
    order."""

    baud: Count = 115_200
    """The speed in bits per second."""

    allow_anonymous: bool = True
    """Whoever is at the other end of the wire needs no account even where there are `accounts`."""


ListenerConfig = TcpConfig | WebSocketConfig | UnixConfig | SerialConfig


WhenFull = Literal["reject_incoming", "discard_old", "flow_control"]


class StoreConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where messages are kept."""

    path: NonEmpty
    """The store's folder, made where there is none. A relative path starts at the configuration file's folder. One
    process uses it at a time. Where its disk has less than 64 MiB left, or less than a tenth, the store is full."""

    commit_interval_ms: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    """The shortest time between two commits, in milliseconds. 0 gives the fastest acknowledgements; more gathers more
    messages in each sync and wears an SD card less. No acknowledgement ever leaves before its sync."""

    max_messages: Count | None = None
    """The most messages that are kept; without it there is no limit but the disk."""

    max_bytes: Annotated[int, msgspec.Meta(ge=1_000_000)] = 4_000_000_000
    """The most bytes in use in the store's file: some 20 million small messages, which `holdfast gateway repair` reads
    in minutes. Half of it stays for messages, whatever else is in the file: where retained messages, sessions, QoS 2
    states and ranges of what was dropped take up more, the file grows beyond it. Where these take up more than half of
    it without the retained messages, new sessions and retained messages are refused (0x97), and `/healthz` says so."""

    when_full: WhenFull = "discard_old"
    """What happens to the next message: as with `[queue]`, but `"discard_old"` drops the oldest ones for all sessions
    and routes that still wait for them; each of these has a [range](store.md#what-was-dropped) in its name. What is on
    its way to a client can still be acknowledged. So a gateway that is left alone goes on taking messages, whatever
    broker or client never returns; `"flow_control"` leaves the next ones with their publishers."""


class QueueConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What may wait for one session, or for the sessions that share a subscription: on the way to the client and not
    acknowledged, or not sent yet."""

    max_messages: Count = 1_000_000
    """The most messages: those of a day at ten in a second. Where they have more than 1,000 bytes on average,
    `max_bytes` is reached first. For a consumer that must miss none, as a lander, both are to be what comes in its
    longest outage."""

    max_bytes: Count = 1_000_000_000
    """The most bytes, of payload, topic name and properties: those of 1,000,000 messages of 1,000 bytes, and a quarter
    of what the store takes. A user property counts for 160 bytes more."""

    when_full: WhenFull = "discard_old"
    """What happens to the next message. `"discard_old"` drops the oldest that are not sent yet. `"reject_incoming"`
    refuses it (0x97), so that no subscriber has it; over MQTT 3.1.1, which cannot refuse, it stays unacknowledged.
    `"flow_control"` lets its publisher wait for the acknowledgement. What is dropped or refused leaves a [range in the
    store](store.md#what-was-dropped)."""


class ClientConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How much of the store the messages of one user may be, from all clients under this name and with their wills, so
    that one does not fill it for all. Clients without a user count together by their address, as for
    `limits.kept_bytes`. A message counts until no session waits for it or for one before it; those from before the
    gateway's start do not count."""

    max_messages: Count | None = None
    """The most messages of QoS 1 and 2."""

    max_bytes: Count | None = None
    """The most bytes, counted as for `[queue]`, or of whole packets."""

    when_full: Literal["reject_incoming", "flow_control"] = "flow_control"
    """What happens to the user's next message, as with `[queue]`."""


class LogConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The log on standard error, one line an event."""

    format: Literal["text", "json"] = "text"
    """`"text"` writes `key=value`, `"json"` an object a line."""


class MetricsConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`/metrics` and `/healthz` over HTTP, for this machine alone: [Watch a gateway](../how-to/metrics.md)."""

    port: TcpPortNumber = 9883
    """The TCP port on 127.0.0.1; 0 takes one that is free."""


class LimitsConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What clients may cost: how many may connect, what those who have not logged in may take up, what each may send.
    Serial lines do not count as connections."""

    connections: Count = 10_000
    """Connections of all listeners together; more are closed at once. Where the limit of open files (`ulimit -n`)
    allows fewer, that counts, less 256 for the gateway itself, or less half of it where it is below 512. Below
    128 the gateway does not start."""

    connections_per_address: Count = 2_000
    """Connections of one IPv4 address, IPv6 /64 or user of this machine. Beyond it a new one takes the place of the
    oldest there whose client has not been let in yet."""

    unauthenticated: Count = 1_000
    """Connections whose client has not been let in yet. Beyond it the address that has most of them loses its oldest
    one for each new one."""

    unauthenticated_bytes: Annotated[int, msgspec.Meta(ge=65_536)] = 16 * 1024 * 1024
    """Memory for what these have sent so far, in bytes. Beyond it whoever holds most of it is closed."""

    connect_timeout_s: Annotated[int, msgspec.Meta(ge=1, le=300)] = 10
    """The time that a client has to be let in, in seconds: over TCP, TLS and WebSocket to CONNACK."""

    messages_per_s: Count | None = None
    """The packets that one user may send in a second, on average, over all connections under this name: messages,
    SUBSCRIBEs, UNSUBSCRIBEs and PINGREQs, not acknowledgements. A will counts when it is published. From a faster one
    nothing is read meanwhile, also not that a connection has ended. Clients without a user count together by their
    address, as for `kept_bytes`."""

    maximum_packet_size: Annotated[int, msgspec.Meta(ge=1_024, le=64 * 1024 * 1024)] = 1024 * 1024
    """The largest packet that a client may send, in bytes: a little more than its largest message. MQTT 5 clients are
    told; whoever sends a larger one is disconnected (0x95). Each client may take up so much memory, and more."""

    inflight: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100
    """The most messages of QoS 1 and 2 that are on the way, sent and not acknowledged, to a client whose CONNECT says
    no Receive Maximum; MQTT 3.1.1 cannot say one. A client that says one gets so many, 1,000 at most. What is not
    acknowledged when a connection ends comes again over the next one, so a higher number repeats more on a bad line,
    and a lower one waits more on a long line: over a round trip of 50 ms mosquitto's 20 are 400 messages a second, and
    100 are 2,000."""

    subscriptions: Count = 10_000
    """The most subscriptions of one session; more are refused (0x97). A shared one counts as ten, and each once more
    for every ten slashes and for every 500 characters of its topic filter. Their filters are of 100 patterns at most:
    those with wildcards at the same levels are of one, and each share name has its own."""

    kept_bytes: Annotated[int, msgspec.Meta(ge=1_048_576)] = 64 * 1024 * 1024
    """Memory that one user may have the gateway keep for all sessions under this name, in bytes; clients without a user
    count together by their address (IPv4, or IPv6 /64). All together may have four times as much; where that is taken,
    each may still have an equal part of it. A subscription counts for 700 bytes, 350 for each level and two for each
    character, a shared one for 6,000 more; a retained message on its way to a new subscription for 400 and its name; a
    will for 1,000 and twice its size; a packet whose end has not come for what has come of it. Beyond it a SUBSCRIBE's
    filters are refused (0x97), and a CONNECT with a will (0x97; over MQTT 3.1.1 3, server unavailable), and a
    connection ends with the packet that does not fit (0x97)."""

    sessions: Count = 10_000
    """The most sessions that stay when their clients go (Session Expiry Interval above 0, or Clean Session 0). A client
    that would make one more is refused (0x97; over MQTT 3.1.1 3, server unavailable)."""

    session_expiry_max_s: Annotated[int, msgspec.Meta(ge=1, le=0xFFFF_FFFF)] = 14 * 24 * 3600
    """How long a session stays whose client is away, in seconds, also where its client asks for longer or, as over MQTT
    3.1.1, for ever: two weeks, so that clients outlast a holiday and those that never return do not fill the store.
    MQTT 5 clients are told. What waited leaves a [range in the store](store.md#what-was-dropped). 4294967295 is for
    ever."""

    retained_bytes: Annotated[int, msgspec.Meta(ge=65_536)] = 256 * 1024 * 1024
    """The most bytes of all retained messages together, of payload, properties and names (topic, client, origin,
    gateway); never more than half of `store.max_bytes`. Beyond it a retained message is refused as with
    `retained_messages`, unless it is no larger than the one whose place it takes, or than 1,024 bytes and takes one's
    place."""

    retained_messages: Count = 100_000
    """The most topics with a retained message. A retained message for one more topic is refused (0x97; over MQTT 3.1.1
    it stays unacknowledged); at QoS 0, and as a will, it is delivered and not kept. Topics that have one get new ones
    as ever."""

    keep_alive_s: Annotated[int, msgspec.Meta(ge=1, le=65_535)] | None = None
    """The longest keep alive, in seconds: an MQTT 5 client that asks for a longer one or for none is told to keep to
    this. Without it each client has what it asks for."""


class GatewayConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The whole file, but for its `[[route]]` tables."""

    name: NonEmpty
    """The gateway's name, of 128 bytes at most: the origin of the identities that it gives to messages without one. It
    never changes in a gateway's life."""

    store: StoreConfig
    """Where messages are kept."""

    listener: list[ListenerConfig] = []
    """Where clients come in."""

    accounts: NonEmpty | None = None
    """The [accounts file](../how-to/accounts.md): who may log in with which password. Read again on SIGHUP."""

    acl: NonEmpty | None = None
    """The file of [access rules](../how-to/accounts.md#say-who-may-do-what): who may do what. Read again on SIGHUP."""

    log: LogConfig = LogConfig()
    """What the log looks like."""

    metrics: MetricsConfig | None = None
    """The table `[metrics]` brings `/metrics` and `/healthz`; without it nobody is answered."""

    limits: LimitsConfig = LimitsConfig()
    """What clients may cost."""

    queue: QueueConfig = QueueConfig()
    """What may wait for one session."""

    client: ClientConfig = ClientConfig()
    """How much of the store the messages of one user may be."""


def allows_anonymous(config: GatewayConfig, listener: ListenerConfig) -> bool:
    """Whether a client without an account or a certificate may come in by a listener."""
    return listener.allow_anonymous or config.accounts is None
