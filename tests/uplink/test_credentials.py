"""A route's login and TLS: what it shows the next broker, and by what it knows that broker."""

import logging
import shutil
import ssl
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from cryptography import x509
from paho.mqtt.client import MQTTMessage

from gateway.config.errors import ConfigSource
from gateway.config.load import load
from host.errors import ConfigError
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tests.support.subscriber import subscriber
from tests.uplink.support import append, get, opened, route_config, running, serving, until
from tools.lab.testing.certificates import Authority
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.ports import free_port
from uplink.config.route import RouteConfig
from uplink.config.tls import RouteTlsConfig
from uplink.connect import credentials
from uplink.reading import routes_of
from uplink.route import Route

MINIMAL = 'name = "gw"\n[store]\npath = "store"\n[[route]]\nname = "up"\n'


def written(path: Path, text: str) -> Path:
    """Writes a secret to a file that only its owner reads."""
    path.write_text(text)
    path.chmod(0o600)
    return path


def shown(broker: ScriptedBroker, password: Path) -> RouteConfig:
    """A route that shows this broker the password of a file."""
    return route_config(broker.port, user="site-1", password_file=str(password))


@contextmanager
def broker(folder: Path, lines: str, port: int | None = None) -> Iterator[int]:
    """Runs mosquitto; yields the port where any client may subscribe."""
    mosquitto = Mosquitto(folder, f"per_listener_settings true\n{lines}", port, is_persistent=False)
    mosquitto.start()
    try:
        yield mosquitto.port
    finally:
        mosquitto.stop()


def tls_listener(port: int, files: tuple[Path, Path], *more: str) -> str:
    certificate, key = files
    options = (f"certfile {certificate}", f"keyfile {key}", *more)
    return "\n".join(("allow_anonymous true", f"listener {port} 127.0.0.1", *options))


async def arrives(config: RouteConfig, folder: Path, received: "Queue[MQTTMessage]") -> None:
    async with opened(folder) as log, running(log, config):
        await append(log, range(1, 2))
        assert (await get(received)).payload == b"1"


async def test_a_route_shows_its_certificate_to_a_broker_that_it_knows_by_its_own(tmp_path: Path) -> None:
    authority, port = Authority(tmp_path), free_port()
    certificate, key = map(str, authority.sign("route", ["gateway-1"]))
    tls = RouteTlsConfig(str(authority.path), certificate, key)
    config = route_config(port, broker=f"mqtts://127.0.0.1:{port}", tls=tls)
    more = f"cafile {authority.path}", "require_certificate true", "use_identity_as_username true"
    with broker(tmp_path, tls_listener(port, authority.server(), *more)) as plain, subscriber(plain) as received:
        await arrives(config, tmp_path, received)


async def test_a_broker_that_wants_a_certificate_is_told_by_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority, port = Authority(tmp_path), free_port()
    config = route_config(port, broker=f"mqtts://127.0.0.1:{port}", tls=RouteTlsConfig(str(authority.path)))
    more = f"cafile {authority.path}", "require_certificate true"
    with broker(tmp_path, tls_listener(port, authority.server(), *more)):
        async with opened(tmp_path) as log, running(log, config):
            await until(lambda: "TLS failed: tlsv13 alert certificate required; storing meanwhile" in caplog.text)


@pytest.mark.parametrize("whose", ["route", "broker"])
async def test_a_certificate_that_is_out_of_date_counts_as_a_refused_login(tmp_path: Path, whose: str) -> None:
    authority, port = Authority(tmp_path), free_port()
    lives = {end: timedelta(hours=-1 if end == whose else 1) for end in ("route", "broker")}
    certificate, key = map(str, authority.sign("route", ["gateway-1"], life=lives["route"]))
    own = authority.sign("server", ["server"], [x509.DNSName("localhost")], life=lives["broker"])
    tls = RouteTlsConfig(str(authority.path), certificate, key)
    config = route_config(port, broker=f"mqtts://localhost:{port}", tls=tls)
    more = f"cafile {authority.path}", "require_certificate true"
    with broker(tmp_path, tls_listener(port, own, *more)):
        async with opened(tmp_path) as log:
            route = Route(config, "gateway-1", log)
            async with serving(route):
                await until(lambda: "expired" in route.queue.state.login_refused)


async def test_a_port_without_tls_is_told_by_its_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = route_config(0, broker=f"mqtts://127.0.0.1:{(port := free_port())}")
    with broker(tmp_path, f"allow_anonymous true\nlistener {port} 127.0.0.1"):
        async with opened(tmp_path) as log, running(log, config):
            await until(lambda: "the port may be one without TLS" in caplog.text)


async def test_a_broker_that_others_vouch_for_gets_nothing_until_they_are_trusted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority, stranger, port = Authority(tmp_path), Authority(tmp_path / "other", "other"), free_port()
    trusted = tmp_path / "trusted.pem"
    shutil.copy(stranger.path, trusted)
    config = route_config(port, broker=f"mqtts://127.0.0.1:{port}", tls=RouteTlsConfig(str(trusted)))
    caplog.set_level(logging.WARNING)
    with broker(tmp_path, tls_listener(port, authority.server())) as plain, subscriber(plain) as received:
        async with opened(tmp_path) as log, running(log, config):
            await append(log, range(1, 2))
            await until(lambda: "its certificate is refused: unable to get local issuer certificate" in caplog.text)
            assert received.empty()
            shutil.copy(authority.path, trusted)
            assert (await get(received)).payload == b"1"


async def test_a_certificate_for_another_name_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority, port = Authority(tmp_path), free_port()
    files = authority.sign("other", ["other"], [x509.DNSName("other.example")])
    config = route_config(port, broker=f"mqtts://localhost:{port}", tls=RouteTlsConfig(str(authority.path)))
    caplog.set_level(logging.WARNING)
    with broker(tmp_path, tls_listener(port, files)):
        async with opened(tmp_path) as log, running(log, config):
            await until(lambda: "its certificate is refused: Hostname mismatch" in caplog.text)


async def test_a_wrong_password_is_said_and_its_file_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users, password, port = tmp_path / "users", tmp_path / "password", free_port()
    subprocess.run(["mosquitto_passwd", "-b", "-c", users, "site-1", "right"], check=True, capture_output=True)
    users.chmod(0o644)
    written(password, "wrong\n")
    config = route_config(port, user="site-1", password_file=str(password))
    lines = f"allow_anonymous true\nlistener {port} 127.0.0.1\npassword_file {users}"
    caplog.set_level(logging.WARNING)
    with broker(tmp_path, lines) as plain, subscriber(plain) as received:
        async with opened(tmp_path) as log, running(log, config):
            await append(log, range(1, 2))
            await until(lambda: "not authorized (0x87)" in caplog.text)
            password.write_text("right\r\n")
            assert (await get(received)).payload == b"1"
    assert "wrong" not in caplog.text and "right" not in caplog.text


async def test_a_route_whose_password_file_vanishes_says_so_and_goes_on_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    password = tmp_path / "password"
    caplog.set_level(logging.WARNING)
    with broker(tmp_path, "allow_anonymous true") as port, subscriber(port) as received:
        config = route_config(port, user="site-1", password_file=str(password))
        async with opened(tmp_path) as log, running(log, config):
            await append(log, range(1, 2))
            await until(lambda: f"{password}: No such file or directory; storing meanwhile" in caplog.text)
            written(password, "p")
            assert (await get(received)).payload == b"1"


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
async def test_a_password_file_that_others_may_read_or_change_is_refused_until_they_may_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    password = written(tmp_path / "password", "p")
    password.chmod(mode)
    async with scripted_broker() as broker, opened(tmp_path) as log, running(log, shown(broker, password)):
        await until(lambda: f"{password}: others may read or change it; expected the permissions" in caplog.text)
        assert broker.connects == []
        password.chmod(0o640)
        await until(lambda: bool(broker.connects))


async def test_the_byte_order_mark_that_an_editor_writes_is_no_part_of_the_password(tmp_path: Path) -> None:
    password = written(tmp_path / "password", "\N{ZERO WIDTH NO-BREAK SPACE}right\r\n")
    async with scripted_broker() as broker, opened(tmp_path) as log, running(log, shown(broker, password)):
        await until(lambda: bool(broker.connects))
    assert broker.connects[0].password == b"right"


def check(path: Path) -> None:
    """Reads a configuration with the files of its routes."""
    source = ConfigSource(path)
    routes = routes_of(source, load(path)[1])
    credentials.check(source, routes)
    source.raise_errors()


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (
            'broker = "mqtt://b"\n[route.tls]\n',
            "{path}:6: route[0].broker: 'mqtt://b', expected mqtts:// or wss:// as there is a table tls",
        ),
        (
            'broker = "mqtt://:secret@b"\n',
            "{path}:6: route[0].broker: expected no user and no password in it: they are `user` and `password_file`",
        ),
        (
            'broker = "mqtt://b"\nwindows = ["* 1-4 * * *", "* 25 * * *"]\n',
            "{path}:7: route[0].windows: '* 25 * * *': Bad hour",
        ),
        (
            'broker = "mqtts://b"\nfallbacks = ["mqtts://c", "mqtt://d"]\n',
            "{path}:7: route[0].fallbacks: 'mqtt://d', expected mqtts:// or wss:// as broker has it",
        ),
        (
            'broker = "mqtt://a..b"\n',
            "{path}:6: route[0].broker: 'mqtt://a..b', expected a host name without empty parts, of at most "
            "63 characters each",
        ),
        (
            'broker = "mqtts://b"\nuser = "u"\npassword_file = "gateway.toml"\n',
            "{path}:8: route[0].password_file: {folder}/gateway.toml: others may read or change it; expected the "
            "permissions 0600 or 0640",
        ),
        (
            'broker = "mqtts://b:0"\n',
            "{path}:6: route[0].broker: 'mqtts://b:0', expected mqtt://host:port, mqtts://host:port, ws://host:port/path",
        ),
        (
            'broker = "mqtts://b"\n[route.tls]\nca = "empty"\n',
            "{path}:7: route[0].tls: {folder}/empty: expected certificates of authorities in PEM",
        ),
        (
            'broker = "mqtts://b"\nuser = "u"\npassword_file = "empty"\n',
            "{path}:8: route[0].password_file: {folder}/empty: expected a password on one line, of at most 65535 bytes",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, lines: str, complaint: str) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(MINIMAL + lines)
    path.chmod(0o644)
    written(tmp_path / "empty", "")
    with pytest.raises(ConfigError) as caught:
        check(path)
    assert str(caught.value).startswith(complaint.format(folder=tmp_path, path=path))


def agreed(client: ssl.SSLContext, server: ssl.SSLContext) -> tuple[str | None, str] | None:
    """The version and the suite of TLS that two ends agree on; None where there is none."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                try:
                    end.do_handshake()
                except ssl.SSLError as error:
                    if isinstance(error, ssl.SSLWantReadError):
                        raise
                    return None
    return ends[0].version(), (ends[0].cipher() or ("",))[0]


def test_a_route_speaks_its_lowest_version_and_its_suites(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    def context_of(**keys: Any) -> ssl.SSLContext:
        tls = RouteTlsConfig(str(authority.path), **keys)
        context = credentials.Credentials(route_config(1, broker="mqtts://127.0.0.1:1", tls=tls)).context()
        assert context is not None
        return context

    def broker_of(version: ssl.TLSVersion) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.server())
        context.set_ciphers("ECDHE+AES:!AESGCM:AES+SHA:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = context.maximum_version = version
        return context

    assert agreed(context_of(), broker_of(ssl.TLSVersion.TLSv1_3)) == ("TLSv1.3", "TLS_AES_256_GCM_SHA384")
    assert agreed(context_of(), broker_of(ssl.TLSVersion.TLSv1_2)) is None  # it has CBC alone
    suite = "ECDHE-ECDSA-AES128-SHA256"
    assert agreed(context_of(ciphers=suite), broker_of(ssl.TLSVersion.TLSv1_2)) == ("TLSv1.2", suite)
    assert agreed(context_of(ciphers=suite), broker_of(ssl.TLSVersion.TLSv1)) is None
    found = agreed(context_of(minimum_version="1.0"), broker_of(ssl.TLSVersion.TLSv1))
    assert found == ("TLSv1", "ECDHE-ECDSA-AES256-SHA")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1):
        assert agreed(context_of(minimum_version="1.3", ciphers=suite), broker_of(version)) is None
