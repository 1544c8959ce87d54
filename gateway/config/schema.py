"""The keys of the gateway's configuration file, with their meanings. The reference page is made of it."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gateway.config.connectors import ConnectorConfig
from gateway.config.errors import Checked
from gateway.config.home_assistant import HomeAssistantConfig
from gateway.config.kinds import Count, NonEmpty, WhenFull, errors_in_networks
from gateway.config.multicast import MulticastConfig
from gateway.config.network import NeighbourConfig, NetworkConfig, TopicConfig
from gateway.config.streams import FOLDER, StreamConfig
from gateway.streams.names import is_stream_name, prefix_of
from host.tls import Version
from host.tls import errors_in as errors_in_suites
from wire.reserved import STREAM_TOPICS

TCP_PORT_MAX = 65_535

TcpPortNumber = Annotated[int, msgspec.Meta(ge=0, le=TCP_PORT_MAX)]


class TlsConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """TLS on a listener. The files are read again on SIGHUP; clients stay connected, unless their certificate is
    revoked."""

    certificate: NonEmpty
    """A PEM file with the gateway's certificate and the certificates between it and the root."""

    key: NonEmpty
    """The certificate's private key, not encrypted: a PEM file."""

    client_ca: NonEmpty | None = None
    """A PEM file with the certificates of the authorities that sign clients' certificates. With it each client must
    show a certificate. The certificate names the user, and this user needs no account."""

    client_crl: NonEmpty | None = None
    """A PEM file with the revocation lists of these authorities; it must have the list of each client's own authority.
    When the file is read again, connections whose certificate is on a list end. If a list has expired, no client of its
    authority can log in: the log and `/healthz` say so two weeks before. An expired list does not replace one that
    counts, nor does one with a lower number (or the same number and other certificates, as an authority's files from an
    old backup make it), nor a file without a list of an authority in `client_ca`. If there is a list for each authority
    in `client_ca`, and for each authority that signed one of these, then intermediate authorities are checked too, and
    each of them needs a list. Otherwise only clients' own certificates are checked, and a revoked intermediate
    authority still lets its clients in. Names are compared byte by byte."""

    user_from: Literal["common_name", "dns", "uri", "email"] = "common_name"
    """The field of a client's certificate that names the user: the subject's common name, or the subject alternative
    name of this type. A certificate without this field, or with several, is refused."""

    minimum_version: Version = "1.2"
    """The lowest version of TLS. `"1.0"` and `"1.1"` let old devices in: they add cipher suites without forward
    secrecy, and lower OpenSSL's security level to 0, so that also short keys and SHA-1 in certificates are
    accepted. Give such devices a listener of their own."""

    ciphers: NonEmpty | None = None
    """The cipher suites before TLS 1.3, as OpenSSL writes them, such as `"ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA"`.
    Without it these are ECDHE with AES-GCM or ChaCha20-Poly1305. The security level is 2 if there is no `@SECLEVEL=`
    in it; versions before 1.2 need `@SECLEVEL=0`. Suites without a certificate or encryption are never used. The three
    suites of TLS 1.3 are always there."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from (
            ("ciphers", what) for what in errors_in_suites(values.get("minimum_version", "1.2"), values.get("ciphers"))
        )
        if values.get("client_ca", "") is None:
            if values.get("client_crl") is not None:
                yield "client_crl", "there is no client_ca, so no client shows a certificate"
            if values.get("user_from", "common_name") != "common_name":
                yield "user_from", "there is no client_ca, so no client shows a certificate"


class TcpConfig(Checked, tag_field="kind", tag="tcp", forbid_unknown_fields=True, frozen=True):
    """A TCP port on which clients connect. If the port is in use, the start ends with its address and exit code 1."""

    host: NonEmpty = "127.0.0.1"
    """The address to listen on. `"::"` is IPv4 and IPv6, `"0.0.0.0"` is IPv4 only. A name stands for all its
    addresses."""

    port: TcpPortNumber = 1883
    """The TCP port; 0 chooses a free one. With TLS, 8883 is usual."""

    allow_anonymous: bool = False
    """Lets clients that reach this address connect without an account. A listener that is not on loopback does not
    start without this, `accounts` or `tls.client_ca`. If there are accounts and this is false, every client must log
    in, on loopback too."""

    tls: TlsConfig | None = None
    """Encrypts the connections to this port."""

    realtime: bool = False
    """Makes this a real-time listener: its clients publish and receive at QoS 0 alone, nothing of that is stored, and
    what they publish goes to all neighbours at once, wanted or not ([real time](../explanation/networks.md#real-time)).
    Their subscriptions count at this gateway alone."""

    stream: str = ""
    """The stream of its clients' topics where these name none: the name of a `[[stream]]`. Without it that is the
    default stream. A user of `[[stream]].users` has the stream of that table instead."""

    proxy_from: tuple[NonEmpty, ...] = ()
    """The IP addresses and networks, such as `"10.0.0.5"` and `"10.0.0.0/8"`, of proxies in front of this port that
    send a header of the PROXY protocol, version 2 (HAProxy's `send-proxy-v2`). The client's address is the one in the
    header: for `[limits]`, for wrong passwords and in the log. A connection from there without this header is refused.
    From other addresses a header is not believed, and ends the connection as any other bytes do that are no MQTT, TLS
    or HTTP. A client that can connect from an address of this list can claim any address, so list proxies
    alone. With this key the port does not count as loopback."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from (("proxy_from", what) for what in errors_in_networks(values.get("proxy_from", ())))


class WebSocketConfig(Checked, tag_field="kind", tag="websocket", forbid_unknown_fields=True, frozen=True):
    """A TCP port on which clients connect over WebSocket, with the subprotocol `mqtt` or none."""

    host: NonEmpty = "127.0.0.1"
    """The address to listen on, as above."""

    port: TcpPortNumber = 8083
    """The TCP port; 0 chooses a free one."""

    allow_anonymous: bool = False
    """Lets clients that reach this address connect without an account, as above."""

    tls: TlsConfig | None = None
    """Encrypts the connections to this port (`wss`)."""

    paths: Annotated[tuple[NonEmpty, ...], msgspec.Meta(min_length=1)] = ("/", "/mqtt")
    """The paths of the URL at which clients connect. A request for another path is answered with 404."""

    stream: str = ""
    """The stream of its clients' topics, as above."""

    origins: tuple[str, ...] = ()
    """The origins of the web pages that may connect, such as `"https://dashboard.example.org"`; `"*"` is all. A page
    from the host to which it connects is always allowed. Without TLS this holds only if the host is an address,
    `localhost` or the machine's own name (with `.local` or without), because the owner of any other name can make it
    point here. The reason for this check: any page of any site can make a browser connect from its user's network.
    Clients that are not browsers send no origin and are not checked."""

    realtime: bool = False
    """Makes this a real-time listener, as above."""

    proxy_from: tuple[NonEmpty, ...] = ()
    """The proxies that send a header of the PROXY protocol, as above."""

    forwarded_from: tuple[NonEmpty, ...] = ()
    """The IP addresses and networks of proxies that send the header `X-Forwarded-For` (nginx's `proxy_set_header`). The
    client's address is the last one in it that is not of this list. A proxy's request without this header counts for
    the proxy. From other addresses the header is not looked at. All else is as with `proxy_from`; with both keys, the
    address in the PROXY header is the one that is looked up in this list."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for key in ("proxy_from", "forwarded_from"):
            yield from ((key, what) for what in errors_in_networks(values.get(key, ())))
        for path in values.get("paths", ()):
            if not path.startswith("/") or "?" in path or "#" in path:
                yield "paths", f"{path!r}: expected a path that begins with '/', without a query"


class UnixConfig(msgspec.Struct, tag_field="kind", tag="unix", forbid_unknown_fields=True, frozen=True):
    """A Unix socket, for clients on the same machine that have permission to open it."""

    path: NonEmpty
    """The socket's path. A relative path begins at the configuration file's folder."""

    mode: Annotated[int, msgspec.Meta(ge=0, le=0o777)] = 0o660
    """The socket's permissions: users that may write to it may connect. TOML writes octal numbers as `0o660`."""

    allow_anonymous: bool = False
    """Lets clients that may open the socket connect without an account, even if there are `accounts`."""

    realtime: bool = False
    """Makes this a real-time listener, as above."""

    stream: str = ""
    """The stream of its clients' topics, as above."""


class SerialConfig(msgspec.Struct, tag_field="kind", tag="serial", forbid_unknown_fields=True, frozen=True):
    """A serial line with one device at its other end; one table for each port. If a port is missing or disappears, the
    gateway logs it once and tries again until the port is there."""

    device: NonEmpty
    """The path of the serial port. A path below `/dev/serial/by-id` stays the same when ports are plugged in in another
    order."""

    baud: Count = 115_200
    """The speed in bits per second."""

    allow_anonymous: bool = True
    """Lets the device at the other end of the line connect without an account, even if there are `accounts`."""

    stream: str = ""
    """The stream of its clients' topics, as above."""


ListenerConfig = TcpConfig | WebSocketConfig | UnixConfig | SerialConfig


class StoreConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where the gateway stores messages."""

    path: NonEmpty
    """The store's folder; the gateway creates it if it is missing. A relative path starts at the configuration file's
    folder. Only one process can use a store at a time. If the folder's disk has less than 64 MiB or less than a tenth
    of its space left, the store counts as full."""

    commit_interval_ms: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    """The shortest time between two commits, in milliseconds. 0 gives the fastest acknowledgements. A larger value puts
    more messages in each sync and wears an SD card less. The gateway always syncs a message before it acknowledges
    it."""

    max_messages: Count | None = None
    """The most messages in the store. Without it, only `max_bytes` and the disk limit the store."""

    max_bytes: Annotated[int, msgspec.Meta(ge=1_000_000)] = 4_000_000_000
    """The most bytes in use in the store's file. The default holds some 20 million small messages, which `holdfast
    gateway repair` reads in minutes. Half of it is reserved for messages: if retained messages, sessions, QoS 2 states
    and ranges of dropped messages take more than the other half, the file grows beyond `max_bytes`. If these take more
    than half even without the retained messages, new sessions and retained messages are refused (0x97), and `/healthz`
    says so."""

    when_full: WhenFull = "discard_old"
    """What happens to the next message when the store is full. The values mean the same as for `[queue]`, but
    `"discard_old"` drops the oldest messages for all sessions and routes that still wait for them; each of these gets a
    [range](store.md#what-was-dropped) of its own. A message on its way to a client can still be acknowledged. With
    `"discard_old"` an unattended gateway keeps accepting messages even if a broker or client never returns. With
    `"flow_control"` new messages stay with their publishers."""

    volatile: bool = False
    """Lets the store, and those of streams, be on a file system that loses what is written there: in memory (tmpfs,
    ramfs), or a container's layer or a read-only system's overlay (overlay, aufs). The gateway then acknowledges
    messages that a restart of the machine, or the end of the container, takes away. Without it the gateway does not
    start there. For trials and tests."""


class QueueConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The limits of what may wait for one session or one share group: messages that are in flight to the client or not
    sent yet."""

    max_messages: Count = 1_000_000
    """The most messages. The default is the messages of a day at ten a second. If they have more than 1,000 bytes on
    average, `max_bytes` is reached first. For a consumer that must not miss any, such as a lander, set both to what
    arrives in its longest outage."""

    max_bytes: Count = 1_000_000_000
    """The most bytes of payload, topic name and properties. The default is 1,000,000 messages of 1,000 bytes, a quarter
    of the store's limit. Each user property counts for 160 bytes more."""

    when_full: WhenFull = "discard_old"
    """What happens to the next message when the queue is full. `"discard_old"` drops the oldest messages that are not
    sent yet. `"reject_incoming"` refuses the message (0x97), so that no subscriber gets it; MQTT 3.1.1 has no refusal,
    so there it stays unacknowledged. `"flow_control"` delays the acknowledgement until there is room. A route's broker,
    which would keep back everything for one full queue, is not refused and not held up while less than half of the
    store is used; then it waits. Each dropped or refused message leaves a [range in the
    store](store.md#what-was-dropped)."""


class ClientConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The quota of the store for the messages of one user, from all its clients and with their wills, so that one user
    cannot fill the store. Clients without a user count together by their address, as for `limits.kept_bytes`. A message
    counts until no session waits for it or for an earlier one. Messages from before the gateway's start do not
    count."""

    max_messages: Count | None = None
    """The most messages of QoS 1 and 2."""

    max_bytes: Count | None = None
    """The most bytes, counted as for `[queue]`, or as whole packets."""

    when_full: Literal["reject_incoming", "flow_control"] = "flow_control"
    """What happens to the user's next message when the limit is reached, as with `[queue]`."""


class LogConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The log on standard error, one line for each event."""

    format: Literal["text", "json"] = "text"
    """`"text"` writes `key=value`, `"json"` writes a JSON object on each line."""


class MetricsConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`/metrics` and `/healthz` over HTTP, for programs on this machine only: [Watch a
    gateway](../how-to/metrics.md)."""

    port: TcpPortNumber = 9883
    """The TCP port on 127.0.0.1; 0 chooses a free one."""

    firmware: NonEmpty | None = None
    """The folder that `holdfast device build --web` has written. The gateway serves it at `/firmware/` on this port,
    for [a browser on this machine](../how-to/flash-in-the-browser.md) that writes a board. It has the passwords of the
    device, and every user of this machine can read it there: remove the key afterwards. A relative path begins at the
    configuration file's folder."""


class PageConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The [status page](../how-to/status-page.md) over HTTP, for browsers. It only shows, and changes nothing."""

    host: NonEmpty = "127.0.0.1"
    """The address to listen on, as for a listener. One that is not loopback needs `tls`, and `accounts` or
    `tls.client_ca`. With `accounts` a visitor logs in, on loopback too, unless a rule lets clients without a user
    [`watch`](../how-to/accounts.md#set-access-rules)."""

    port: TcpPortNumber = 9884
    """The TCP port; 0 chooses a free one."""

    tls: TlsConfig | None = None
    """Encrypts the connections to this port (`https`)."""


class LimitsConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The limits of what clients may use: how many may connect, what clients that have not logged in may use, and what
    each client may send. Serial lines do not count as connections."""

    connections: Count = 10_000
    """The most connections to all listeners together; more are closed at once. If the limit of open files (`ulimit -n`)
    is lower, it applies instead, less 256 files for the gateway itself (less half of it if it is below 512). If it is
    below 128, the gateway does not start."""

    connections_per_address: Count = 2_000
    """The most connections of one IPv4 address, one IPv6 /64 or one user of this machine. Beyond it a new connection
    replaces the oldest one there that is not logged in yet."""

    unauthenticated: Count = 1_000
    """The most connections that are not logged in yet. Beyond it each new connection replaces the oldest one of the
    address that has most of them."""

    unauthenticated_bytes: Annotated[int, msgspec.Meta(ge=65_536)] = 16 * 1024 * 1024
    """The most memory, in bytes, for what connections that are not logged in have sent. Beyond it the connection that
    uses most of it is closed."""

    connect_timeout_s: Annotated[int, msgspec.Meta(ge=1, le=300)] = 10
    """The longest time from the TCP connection over TLS and WebSocket to CONNACK, in seconds."""

    messages_per_s: Count | None = None
    """The most packets a second that one user may send on average, over all connections under this name. Messages,
    SUBSCRIBEs, UNSUBSCRIBEs and PINGREQs count; acknowledgements do not. A will counts when it is published. When a
    user sends more, the gateway stops reading from its connections until the average is met; meanwhile it does not
    notice that one of them has ended. Clients without a user count together by their address, as for `kept_bytes`."""

    maximum_packet_size: Annotated[int, msgspec.Meta(ge=1_024, le=64 * 1024 * 1024)] = 1024 * 1024
    """The largest packet that a client may send, in bytes: slightly more than its largest message. MQTT 5 clients get
    this number in the CONNACK. A client that sends a larger packet is disconnected (0x95). Each client may use this
    much memory, and more."""

    inflight: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100
    """The most messages of QoS 1 and 2 in flight to a client whose CONNECT has no Receive Maximum (MQTT 3.1.1 has
    none). A client with a Receive Maximum gets that many, up to 1,000. Messages that are not acknowledged when a
    connection ends are sent again over the next one. So a higher number repeats more messages on a bad line, and a
    lower number waits longer on a slow line: with a round trip of 50 ms, mosquitto's 20 give 400 messages a second, and
    100 give 2,000."""

    subscriptions: Count = 10_000
    """The most subscriptions of one session; more are refused (0x97). A shared one counts as ten. Each counts once
    more for every ten slashes and for every 500 characters of its topic filter, and for every 100 characters of its
    selector. A session's filters may have at most 100 patterns: filters with wildcards at the same levels have the
    same pattern, and each share name has its own."""

    kept_bytes: Annotated[int, msgspec.Meta(ge=1_048_576)] = 64 * 1024 * 1024
    """The most memory, in bytes, that the gateway keeps for all sessions of one user; clients without a user count
    together by their address (IPv4, or IPv6 /64). All users together may have four times as much; if that is used
    up, each may still have an equal part of it. A subscription counts for 700 bytes, 350 for each level and two for
    each character, a shared one for 6,000 more, and one with a selector for 1,200 and 210 for each character of it.
    A retained message on its way to a new subscription counts for 400 and its name. A will counts for 1,000 and
    twice its size. An incomplete packet counts for its received bytes. Beyond the limit, a SUBSCRIBE's filters are
    refused (0x97), a CONNECT with a will is refused (0x97; over MQTT 3.1.1: 3, server unavailable), and a packet
    that does not fit ends its connection (0x97)."""

    sessions: Count = 10_000
    """The most sessions that outlive their connections (Session Expiry Interval above 0, or Clean Session 0). A client
    that would create one more is refused (0x97; over MQTT 3.1.1: 3, server unavailable)."""

    session_expiry_max_s: Annotated[int, msgspec.Meta(ge=1, le=0xFFFF_FFFF)] = 14 * 24 * 3600
    """The longest time that a session without a connected client is kept, in seconds, even if its client asks for
    longer or, as over MQTT 3.1.1, forever. The default is two weeks: long enough for a client that is off over a
    holiday, and short enough that clients that never return do not fill the store. MQTT 5 clients get this number in
    the CONNACK. The messages that waited for an expired session leave a [range in the
    store](store.md#what-was-dropped). 4294967295 is forever."""

    retained_bytes: Annotated[int, msgspec.Meta(ge=65_536)] = 256 * 1024 * 1024
    """The most bytes of all retained messages together: payload, properties and names (topic, client, origin, gateway).
    It is never more than half of `store.max_bytes`. Beyond it a retained message is refused as with
    `retained_messages`, unless it replaces one and is not larger than that one, or not larger than 1,024 bytes."""

    retained_messages: Count = 100_000
    """The most topics with a retained message. A retained message for one more topic is refused (0x97; over MQTT 3.1.1
    it stays unacknowledged). At QoS 0, and as a will, it is delivered and not kept. Retained messages for topics that
    already have one are accepted as before."""

    keep_alive_s: Annotated[int, msgspec.Meta(ge=1, le=65_535)] | None = None
    """The longest keep alive, in seconds. An MQTT 5 client that asks for a longer one, or for none, is told to use this
    one. Without this key each client has the keep alive that it asks for."""


class GatewayConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """All keys of the file except its `[[route]]` tables."""

    name: NonEmpty
    """The gateway's name, of at most 128 bytes, without `/`, `+`, `#` and control characters. It is the origin of the
    identities that the gateway gives to messages without one. Never change it for an existing gateway."""

    store: StoreConfig
    """Where the gateway stores messages."""

    listener: list[ListenerConfig] = []
    """The listeners, where clients connect."""

    accounts: NonEmpty | None = None
    """The [accounts file](../how-to/accounts.md) with users and password hashes. It is read again on SIGHUP."""

    acl: NonEmpty | None = None
    """The file of [access rules](../how-to/accounts.md#set-access-rules). It is read again on SIGHUP."""

    log: LogConfig = LogConfig()
    """The format of the log."""

    metrics: MetricsConfig | None = None
    """The table `[metrics]` turns on `/metrics` and `/healthz`."""

    page: PageConfig | None = None
    """The table `[page]` turns on the [status page](../how-to/status-page.md)."""

    home_assistant: HomeAssistantConfig | None = None
    """The table `[home_assistant]` shows devices in [Home Assistant](../how-to/home-assistant.md)."""

    limits: LimitsConfig = LimitsConfig()
    """The limits of what clients may use."""

    queue: QueueConfig = QueueConfig()
    """The limits of what may wait for one session."""

    client: ClientConfig = ClientConfig()
    """The quota of the store for the messages of one user."""

    topic: list[TopicConfig] = []
    """The limits of what may wait for one consumer below a topic filter."""

    network: NetworkConfig = NetworkConfig()
    """What this gateway does as a part of a [network of gateways](network.md)."""

    stream: list[StreamConfig] = []
    """The streams besides the default one."""

    neighbour: list[NeighbourConfig] = []
    """The neighbours that connect to this gateway. Those to which it connects itself are `route.neighbour`."""

    multicast: list[MulticastConfig] = []
    """The multicast groups."""

    connector: list[ConnectorConfig] = []
    """The connectors, which read devices that speak no MQTT. Their messages go to the default stream."""


def allows_anonymous(config: GatewayConfig, listener: ListenerConfig) -> bool:
    """Whether a client without an account or a certificate may log in through a listener."""
    return listener.allow_anonymous or config.accounts is None


def stream_names(config: GatewayConfig) -> list[str]:
    """Returns the names of all streams; the default stream, "", comes first."""
    return ["", *(one.name for one in config.stream)]


def store_of(config: GatewayConfig, stream: str) -> StoreConfig:
    """Returns the store of a stream, "" for the default one. Raises KeyError: there is no such stream."""
    if not stream:
        return config.store
    found = {one.name: one for one in config.stream}[stream]
    path = found.path or os.path.join(config.store.path, FOLDER, stream)
    return StoreConfig(path, found.commit_interval_ms, found.max_messages, found.max_bytes, found.when_full)


def with_taken_streams(config: GatewayConfig) -> GatewayConfig:
    """Returns a configuration with the streams that were taken of neighbours before (`network.streams`)."""
    folder = Path(config.store.path, FOLDER)
    if config.network.streams != "any" or not folder.is_dir():
        return config
    known = {one.name for one in config.stream}
    names = (path.parent.name for path in sorted(folder.glob("*/messages.sqlite")) if path.parent.name not in known)
    return with_streams(config, filter(is_stream_name, names))


def with_streams(config: GatewayConfig, names: Iterable[str]) -> GatewayConfig:
    """Returns a configuration with more streams, which have the defaults."""
    return msgspec.structs.replace(config, stream=[*config.stream, *map(StreamConfig, names)])


def in_stream(config: GatewayConfig, stream: str) -> GatewayConfig:
    """Returns the configuration as it is for one stream: with its store, and with its topics without their prefix."""
    prefix = prefix_of(stream)

    def inside(topic_filter: str) -> str | None:
        if stream:
            return topic_filter.removeprefix(prefix) if topic_filter.startswith(prefix) else None
        return None if topic_filter.startswith(STREAM_TOPICS) else topic_filter

    topics = [(one, inside(one.filter)) for one in config.topic]
    summary = tuple(found for one in config.network.summary if (found := inside(one)) is not None)
    return msgspec.structs.replace(
        config,
        store=store_of(config, stream),
        topic=[msgspec.structs.replace(one, filter=found) for one, found in topics if found is not None],
        network=msgspec.structs.replace(config.network, summary=summary),
        multicast=[] if stream else config.multicast,
        connector=[] if stream else config.connector,
    )
