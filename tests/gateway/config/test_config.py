"""The configuration file: what is wrong is said with file, key and what was expected."""

import re
from pathlib import Path

import pytest

from gateway.config.load import load
from gateway.config.schema import (
    GatewayConfig,
    QueueConfig,
    SerialConfig,
    StoreConfig,
    TcpConfig,
    UnixConfig,
    allows_anonymous,
)
from host.errors import ConfigError
from uplink.config.route import RouteConfig
from uplink.reading import decode_routes

MINIMAL = 'name = "garage"\n[store]\npath = "store"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "gateway.toml"
    path.write_text(text)
    return path


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    text = """
        name = "garage"
        [store]
        path = "/var/lib/holdfast"
        commit_interval_ms = 20
        [[listener]]
        kind = "tcp"
        host = "0.0.0.0"
        port = 1884
        allow_anonymous = true
        [[listener]]
        kind = "serial"
        device = "/dev/ttyUSB0"
        baud = 921600
        [[route]]
        name = "central"
        anything = ["is", "the", "uplink's", "matter"]
    """
    config, routes = load(write(tmp_path, text))
    assert config == GatewayConfig(
        "garage",
        StoreConfig("/var/lib/holdfast", 20),
        [TcpConfig("0.0.0.0", 1884, True), SerialConfig("/dev/ttyUSB0", 921600)],
    )
    assert routes == [{"name": "central", "anything": ["is", "the", "uplink's", "matter"]}]


def test_a_day_of_large_readings_at_ten_in_a_second_waits_within_the_defaults() -> None:
    """A reading has 900 bytes, and a topic name. One session has room for them, and the store for some sessions."""
    messages, size = 24 * 3600 * 10, 1_000
    queue, store = QueueConfig(), StoreConfig(path="store")
    assert queue.max_messages >= messages and queue.max_bytes >= messages * size
    assert store.max_bytes >= 4 * queue.max_bytes


def test_a_relative_store_lies_beside_the_file(tmp_path: Path) -> None:
    config, routes = load(write(tmp_path, MINIMAL))
    assert config.store.path == str(tmp_path / "store")
    assert routes == []


TCP = MINIMAL + '[[listener]]\nkind = "tcp"\n'
ROUTE = MINIMAL + '[[route]]\nname = "up"\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "colour = 3\n" + MINIMAL,
            "1: colour: unknown key, expected one of name, store, listener, accounts, acl, log, metrics, page",
        ),
        (MINIMAL + "paht = 3\n", "4: store.paht: unknown key, expected one of path, commit_interval_ms"),
        ('name = "garage"\n[store]\n', "2: store.path: missing"),
        ('[store]\npath = "store"\n', "1: name: missing"),
        ('name = ""\n[store]\npath = "store"\n', "1: name: expected text that is not empty"),
        (f'name = "{65 * "é"}"\n[store]\npath = "store"\n', "1: name: 130 bytes, expected 128 at most"),
        (
            f'{MINIMAL}[[route]]\nname = "{128 * "x"}"\nbroker = "mqtt://b"\n',
            "5: route[0].name: 128 bytes, expected 127",
        ),
        (MINIMAL + "commit_interval_ms = -1\n", "4: store.commit_interval_ms: expected a number of at least 0"),
        (
            MINIMAL + '[[listener]]\nkind = "udp"\n',
            '5: listener[0].kind: Invalid value \'udp\', expected "tcp", "websocket", "unix" or "serial"',
        ),
        (
            MINIMAL + "[[listener]]\nport = 1\n",
            '4: listener[0].kind: missing, expected "tcp", "websocket", "unix" or "serial"',
        ),
        (TCP + 'port = "1"\n', "6: listener[0].port: expected a number, got text"),
        (TCP + "# a comment\nport = 70000\n", "7: listener[0].port: expected a number of at most 65535"),
        (
            TCP + TCP[len(MINIMAL) :] + "prot = 1\n",
            "8: listener[1].prot: unknown key, expected one of kind, host, port, ",
        ),
        (TCP + '[listener.tls]\nkey = "k"\n', "6: listener[0].tls.certificate: missing"),
        (
            TCP + '[listener.tls]\ncertificate = "c"\nkey = "k"\nuser_from = "mail"\n',
            "9: listener[0].tls.user_from: 'mail', expected one of 'common_name', 'dns', ",
        ),
        (
            TCP + '[listener.tls]\ncertificate = "c"\nkey = "k"\nuser_from = "dns"\nclient_crl = "l"\n',
            "9: listener[0].tls.user_from: there is no client_ca, so no client shows a certificate\n"
            "{path}:10: listener[0].tls.client_crl: there is no client_ca, so no client shows a certificate",
        ),
        (
            MINIMAL + '[[listener]]\nkind = "websocket"\npaths = ["/mqtt", "ws"]\n',
            "6: listener[0].paths: 'ws': expected a path that begins with '/', without a query",
        ),
        (
            TCP + '[listener.tls]\ncertificate = "c"\nkey = "k"\nciphers = "ECDHE+AESGCM:NOPE"\n',
            "9: listener[0].tls.ciphers: 'NOPE': OpenSSL knows no such cipher suite or rule; ",
        ),
        (
            TCP + '[listener.tls]\ncertificate = "c"\nkey = "k"\nciphers = "TLS_AES_128_GCM_SHA256"\n',
            "9: listener[0].tls.ciphers: 'TLS_AES_128_GCM_SHA256': the suites of TLS 1.3 cannot be chosen, ",
        ),
        (
            TCP + '[listener.tls]\ncertificate = "c"\nkey = "k"\nciphers = "aNULL"\n',
            "9: listener[0].tls.ciphers: 'aNULL': no cipher suite with a certificate and encryption is left",
        ),
        (
            TCP + '[listener.tls]\ncertificate = "c"\nkey = "k"\nciphers = "ALL"\nminimum_version = "1.0"\n',
            "9: listener[0].tls.ciphers: 'ALL': expected @SECLEVEL=0 in it, without which OpenSSL has no TLS 1.0",
        ),
        (
            TCP + '[listener.tls]\ncertificate = "c"\nkey = "k"\nminimum_version = "1.4"\n',
            "9: listener[0].tls.minimum_version: '1.4', expected one of '1.0', '1.1', '1.2', '1.3'",
        ),
        (MINIMAL + '[[listener]]\nkind = "serial"\nbaud = 1\n', "4: listener[0].device: missing"),
        ("name = 2026-01-01\n", "1: name: expected text, got a date"),
        ("route = 3\n" + MINIMAL, "1: route: expected a list, got a number"),
        (
            MINIMAL + '[listener]\nkind = "tcp"\n',
            "4: listener: expected a list, got a table: each of them is written [[listener]]",
        ),
        (MINIMAL + "max_bytes = true\n", "4: store.max_bytes: expected a number, got true or false"),
        (
            ROUTE + 'broker = "mqtts://b"\nfilters = ["a"]\n[route.tls]\nciphers = "NOPE"\n',
            "9: route[0].tls.ciphers: 'NOPE': OpenSSL knows no such cipher suite or rule; ",
        ),
        (ROUTE + 'broker = "mqtt://b"\nfilters = ["#/a"]\n', "7: route[0].filters: '#/a': # must be the last level"),
        (
            ROUTE + 'broker = "mqtt://b"\nfilters = ["$share/g/a"]\n',
            "7: route[0].filters: '$share/g/a': expected a topic filter without $share",
        ),
        (
            ROUTE + 'broker = "mqtt://b"\n[route.shape]\nfilter = "a"\n',
            "7: route[0].shape: expected a list, got a table: each of them is written [[route.shape]]",
        ),
        (
            ROUTE + 'broker = "mqtt://b"\ndirection = "in"\nsubscribe = ["a/b/#", "c/+", "a/#", "+/b"]\n',
            "8: route[0].subscribe: 'a/#' and 'a/b/#' match the same topic names, and a broker may send a message for ",
        ),
        (
            ROUTE + 'broker = "mqtt://b"\ndirection = "in"\nsubscribe = ["a/#", "b", "a/+/c"]\n',
            "8: route[0].subscribe: 'a/+/c' and 'a/#' match the same topic names, ",
        ),
        (
            ROUTE + 'broker = "mqtt://b"\ndirection = "in"\nsubscribe = ["a/+", "$x/+", "b", "+/b"]\n',
            "8: route[0].subscribe: '+/b' and 'a/+' match the same topic names, ",
        ),
        ("name\n", "1: not TOML: Expected '=' after a key in a key/value pair (column 5)"),
        (
            ROUTE + 'broker = "mqtt://b"\nbatch_max_messages = 5\n',
            '7: route[0].batch_max_messages: it needs framing = "batch"',
        ),
        (
            ROUTE + 'broker = "mqtt://b"\nframing = "batch"\nbatch_topic = "a/#"\n',
            "8: route[0].batch_topic: ",
        ),
        (
            ROUTE + 'broker = "mqtt://b"\nframing = "batch"\nbatch_max_messages = 65536\n',
            "8: route[0].batch_max_messages: ",
        ),
        (
            ROUTE + 'broker = "mqtt://b"\nfilters = []\n',
            '7: route[0].filters: "out" needs topic filters, as the route sends',
        ),
        (
            ROUTE + 'broker = "mqtt://b"\nbackfill_rate = 5\nbackfill_weight = 30\n',
            '7: route[0].backfill_rate: it needs order = "live_first"\n'
            '{path}:8: route[0].backfill_weight: it needs order = "live_first"',
        ),
        (
            ROUTE + 'broker = "mqtt://b"\nwhen_spent = "go_on"\n',
            "7: route[0].when_spent: it needs bytes_per_day",
        ),
        (
            ROUTE + 'broker = "mqtt://b"\nkeep_max_bytes = 5\nresend_after_s = 5\n',
            '7: route[0].keep_max_bytes: it needs until = "receipt"\n'
            '{path}:8: route[0].resend_after_s: it needs until = "receipt"',
        ),
        (
            ROUTE + 'broker = "mqtt://b"\nuntil = "receipt"\nstatement_interval_s = 0\n',
            '8: route[0].statement_interval_s: a route with until = "receipt" makes statements: expected more than 0',
        ),
        (
            ROUTE + 'broker = "mqtt://b"\nuntil = "receipt"\n[route.neighbour]\nname = "m"\n',
            "7: route[0].until: a route to a neighbour keeps what its filters match: expected filters",
        ),
        (
            ROUTE + 'broker = "mqtt://b"\nuntil = "receipt"\ndirection = "in"\nsubscribe = ["a"]\n',
            "7: route[0].until: a route that sends nothing keeps nothing",
        ),
        (
            ROUTE + 'broker = "mqtt://b"\nuntil = "receipt"\ndirection = "both"\nsubscribe = ["hf/+/a"]\n',
            "9: route[0].subscribe: 'hf/+/a' matches some receipts: name 'hf/receipt/#' as a whole",
        ),
        (
            ROUTE + 'broker = "mqtt://b"\nuntil = "receipt"\nreceipt_key = "key.pem"\n',
            "8: route[0].receipt_key: 'key.pem', expected 64 hexadecimal digits, as `holdfast cloud receipts` prints",
        ),
        (ROUTE, "4: route[0].broker: missing"),
        (
            ROUTE + 'broker = "mqtt://b"\nsubscribe = ["a"]\n',
            '7: route[0].subscribe: it needs direction = "in" or "both"',
        ),
        (
            ROUTE + 'broker = "mqtt://b"\ndirection = "both"\n',
            '7: route[0].direction: "both" needs topic filters in subscribe',
        ),
        (
            ROUTE + 'broker = "mqtt://b"\ndirection = "in"\nsubscribe = ["a/#/b"]\n',
            "8: route[0].subscribe: 'a/#/b': # must",
        ),
        (
            ROUTE + 'broker = "mqtt://b"\ndirection = "in"\nsubscribe = ["$share/g/a"]\n',
            "8: route[0].subscribe: '$share/g/a': the route's own messages would come back",
        ),
        (
            ROUTE + 'broker = "mqtt://b"\ndirection = "in"\nsubscribe = ["$SYS/#"]\n',
            "8: route[0].subscribe: '$SYS/#': the gateway has topics of its own",
        ),
        (
            ROUTE + 'broker = "http://b"\n',
            "6: route[0].broker: 'http://b', expected mqtt://host:port, mqtts://host:port",
        ),
        (
            ROUTE + 'broker = "mqtt://b"\nwindow = 1\n',
            "7: route[0].window: unknown key, expected one of name, broker, ",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_file_line_and_key(tmp_path: Path, text: str, complaint: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        decode_routes(path, load(path)[1])
    assert str(caught.value).startswith(f"{path}:{complaint.replace('{path}', str(path))}")


@pytest.mark.parametrize("filters", ['"#", "$a/b"', '"a/+", "a/b/c"', '"a/b", "a/+/c"'])
def test_filters_that_match_different_topic_names_may_be_subscribed_together(tmp_path: Path, filters: str) -> None:
    keys = f'broker = "mqtt://b"\ndirection = "in"\nsubscribe = [{filters}]\n'
    path = write(tmp_path, ROUTE + keys)
    (route,) = decode_routes(path, load(path)[1])
    assert isinstance(route, RouteConfig)
    assert len(route.subscribe) == filters.count(",") + 1


def test_two_routes_of_one_name_are_refused(tmp_path: Path) -> None:
    route = '[[route]]\nname = "up"\nbroker = "mqtt://b"\n'
    path = write(tmp_path, MINIMAL + route + route)
    with pytest.raises(ConfigError, match=r":8: route\[1\].name: two routes are named 'up'"):
        decode_routes(path, load(path)[1])


@pytest.mark.parametrize("kind", ["tcp", "websocket"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "gateway.local"])
def test_a_listener_that_is_not_loopback_needs_a_login_or_leave_in_words(tmp_path: Path, host: str, kind: str) -> None:
    listener = f'[[listener]]\nkind = "{kind}"\nhost = "{host}"\n'
    with pytest.raises(
        ConfigError, match=r":6: listener\[0\].host: .* is not loopback: expected accounts, tls.client_ca"
    ):
        load(write(tmp_path, MINIMAL + listener))
    tls = '[listener.tls]\ncertificate = "c"\nkey = "k"\n'
    with pytest.raises(ConfigError, match="is not loopback"):
        load(write(tmp_path, MINIMAL + listener + tls))
    load(write(tmp_path, MINIMAL + listener + "allow_anonymous = true\n"))
    load(write(tmp_path, 'accounts = "a"\n' + MINIMAL + listener))
    load(write(tmp_path, MINIMAL + listener + tls + 'client_ca = "ca"\n'))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "gateway.local"])
def test_a_status_page_that_is_not_loopback_needs_tls_and_users(tmp_path: Path, host: str) -> None:
    page = f'[page]\nhost = "{host}"\n'
    tls = '[page.tls]\ncertificate = "c"\nkey = "k"\n'
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, MINIMAL + page))
    assert re.findall(r":\d+: page.host: .* is not loopback: expected (\S+)", str(caught.value)) == [
        "[page.tls],",
        "accounts",
    ]
    with pytest.raises(ConfigError, match=r"expected accounts or page\.tls\.client_ca, for users to log in"):
        load(write(tmp_path, MINIMAL + page + tls))
    with pytest.raises(ConfigError, match=r"expected \[page.tls\], as passwords go over this connection"):
        load(write(tmp_path, 'accounts = "a"\n' + MINIMAL + page))
    config, _ = load(write(tmp_path, 'accounts = "a"\n' + MINIMAL + page + tls))
    assert config.page is not None and config.page.tls is not None
    assert config.page.tls.key == str(tmp_path / "k")
    load(write(tmp_path, MINIMAL + page + tls + 'client_ca = "ca"\n'))


def test_a_status_page_on_loopback_needs_nothing(tmp_path: Path) -> None:
    config, _ = load(write(tmp_path, MINIMAL + "[page]\n"))
    assert config.page is not None
    assert (config.page.host, config.page.port) == ("127.0.0.1", 9884)


def test_strangers_come_in_on_loopback_until_there_are_accounts(tmp_path: Path) -> None:
    open_to_all, _ = load(write(tmp_path, TCP))
    assert allows_anonymous(open_to_all, open_to_all.listener[0])
    with_accounts, _ = load(write(tmp_path, 'accounts = "a"\n' + TCP))
    assert not allows_anonymous(with_accounts, with_accounts.listener[0])


def test_relative_paths_start_at_the_files_folder(tmp_path: Path) -> None:
    unix = '[[listener]]\nkind = "unix"\npath = "socket"\n'
    tls = '[listener.tls]\ncertificate = "tls/c"\nkey = "/k"\n'
    config, _ = load(write(tmp_path, 'accounts = "a"\nacl = "rules"\n' + TCP + tls + unix))
    tcp, socket = config.listener
    assert isinstance(tcp, TcpConfig) and tcp.tls
    assert (tcp.tls.certificate, tcp.tls.key) == (str(tmp_path / "tls/c"), "/k")
    assert isinstance(socket, UnixConfig)
    assert (socket.path, config.accounts, config.acl) == tuple(
        str(tmp_path / name) for name in ("socket", "a", "rules")
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_listener_needs_none(tmp_path: Path, host: str) -> None:
    load(write(tmp_path, MINIMAL + f'[[listener]]\nkind = "tcp"\nhost = "{host}"\n'))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml: No such file"):
        load(tmp_path / "none.toml")


def test_a_route_that_waits_for_receipts_needs_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path, ROUTE + 'broker = "mqtt://b"\nuntil = "receipt"\n')
    (route,) = decode_routes(path, load(path)[1])
    assert isinstance(route, RouteConfig)
    assert route.subscribed == ("hf/receipt/#",)
