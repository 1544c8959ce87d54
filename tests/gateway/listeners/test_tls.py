"""TLS: which clients it admits, which user a certificate names, and how certificates are renewed."""

import asyncio
import contextlib
import ssl
import warnings
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from gateway.config.schema import TcpConfig, TlsConfig, WebSocketConfig
from gateway.listeners.tls import CertificateRefusedError, Tls
from host.errors import ConfigError
from host.pem import validities
from host.tls import VERSIONS, Version
from tests.gateway.listeners.host import LONG_S, Host, hosting, port_number
from tests.gateway.serving import running
from tests.gateway.support import reasons_of
from tools.lab.testing.certificates import LIFE, Authority
from tools.lab.testing.client import Client
from tools.lab.testing.lines import StreamLine
from wire.codec.packets import Disconnect
from wire.reasons import ADMINISTRATIVE_ACTION


def mutual(folder: Path, authority: Authority, **options: Any) -> TcpConfig:
    certificate, key = authority.server()
    return TcpConfig(port=0, tls=TlsConfig(str(certificate), str(key), client_ca=str(authority.path), **options))


def client_context(authority: Authority, own: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.path))
    if own is not None:
        context.load_cert_chain(*own)
    return context


@contextlib.asynccontextmanager
async def connection(host: Host, context: ssl.SSLContext) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_number(host), ssl=context)
    try:
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def is_let_in(host: Host, context: ssl.SSLContext) -> bool:
    """Whether a connection comes to the broker; TLS 1.3's client learns of a refusal only when it reads."""
    try:
        async with connection(host, context) as reader:
            arrived = asyncio.create_task(host.next_port())
            ended = asyncio.create_task(reader.read())
            await asyncio.wait({arrived, ended}, return_when=asyncio.FIRST_COMPLETED)
            let_in = arrived.done()
            for task in (arrived, ended):
                task.cancel()
            await asyncio.gather(arrived, ended, return_exceptions=True)
            return let_in
    except OSError:
        return False


async def test_a_clients_certificate_names_its_user(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with hosting(mutual(tmp_path, authority)) as host:
        context = client_context(authority, authority.sign("alice", ["alice"]))
        async with connection(host, context):
            assert (await host.next_port()).visitor.certificate_user == "alice"


async def test_a_client_with_no_certificate_or_a_strangers_is_not_admitted(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path / "stranger", "stranger")
    async with hosting(mutual(tmp_path, authority)) as host:
        assert not await is_let_in(host, client_context(authority))
        assert not await is_let_in(host, client_context(authority, stranger.sign("alice", ["alice"])))
        assert await is_let_in(host, client_context(authority, authority.sign("alice", ["alice"])))


@pytest.mark.parametrize("names", [[], ["alice", "bob"], ["*"], ["-"], ["a\nb"]])
async def test_a_certificate_that_names_no_user_or_several_is_not_let_in(tmp_path: Path, names: list[str]) -> None:
    authority = Authority(tmp_path)
    async with hosting(mutual(tmp_path, authority)) as host:
        assert not await is_let_in(host, client_context(authority, authority.sign("odd", names)))


@pytest.mark.parametrize(
    ("kind", "name", "user"),
    [
        ("dns", x509.DNSName("sensor-1.example.org"), "sensor-1.example.org"),
        ("uri", x509.UniformResourceIdentifier("spiffe://site/sensor-1"), "spiffe://site/sensor-1"),
        ("email", x509.RFC822Name("alice@example.org"), "alice@example.org"),
    ],
)
async def test_the_user_can_be_an_alternative_name(
    tmp_path: Path, kind: str, name: x509.GeneralName, user: str
) -> None:
    authority = Authority(tmp_path)
    async with hosting(mutual(tmp_path, authority, user_from=kind)) as host:
        async with connection(host, client_context(authority, authority.sign("one", ["other"], [name]))):
            assert (await host.next_port()).visitor.certificate_user == user
        assert not await is_let_in(host, client_context(authority, authority.sign("none", ["other"])))


async def test_a_certificate_that_cannot_be_read_is_one_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its alternative name is no text. That Python's `ssl` cannot read it, asyncio would log with a traceback."""
    broken = x509.UnrecognizedExtension(x509.ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"\x30\x06\x86\x04\xff\xfe\xfd\xfc")
    authority = Authority(tmp_path)
    async with hosting(mutual(tmp_path, authority)) as host:
        own = authority.sign("alice", ["alice"], extension=broken)
        assert not await is_let_in(host, client_context(authority, own))
    assert [record.getMessage() for record in caplog.records] == ["connection failed"]
    assert reasons_of(caplog) == ["its certificate cannot be read"]


async def test_why_a_certificate_is_refused_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path / "other", "stranger")
    own = authority.sign("old", ["old"], life=-LIFE / 2), authority.sign("bob", ["bob"]), stranger.sign("eve", ["eve"])
    async with hosting(mutual(tmp_path, authority, client_crl=str(authority.revoke("bob")))) as host:
        for one in own:
            assert not await is_let_in(host, client_context(authority, one))
    assert reasons_of(caplog) == [
        f"CERTIFICATE_VERIFY_FAILED: {why}"
        for why in ("certificate has expired", "certificate revoked", "unable to get local issuer certificate")
    ]


async def test_a_revoked_certificate_is_not_let_in_once_the_list_is_read(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    alice, bob = (client_context(authority, authority.sign(name, [name])) for name in ("alice", "bob"))
    async with hosting(mutual(tmp_path, authority, client_crl=str(authority.revoke("bob")))) as host:
        assert await is_let_in(host, alice)
        assert not await is_let_in(host, bob)
        authority.revoke("bob", "alice")
        host.listeners.reload()
        assert not await is_let_in(host, alice)


async def test_a_connection_ends_when_its_certificate_is_on_the_list_that_is_read_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    listener = mutual(tmp_path, authority, client_crl=str(authority.revoke()))
    names = ("alice", "bob", "carl")
    contexts = {name: client_context(authority, authority.sign(name, [name])) for name in names}
    async with running(tmp_path / "store", listener) as broker:
        port = broker.listeners.all[0].port  # type: ignore[union-attr]
        clients = {}
        for name in ("alice", "bob"):
            line = await asyncio.open_connection("127.0.0.1", port, ssl=contexts[name])
            clients[name] = Client(name)
            await clients[name].connect_over(StreamLine(*line))
        not_logged_in, silent = await asyncio.open_connection("127.0.0.1", port, ssl=contexts["carl"])
        await clients["bob"].ping()
        authority.revoke("alice", "carl")
        broker.reload()
        assert (await clients["alice"].expect(Disconnect)).reason_code == ADMINISTRATIVE_ACTION
        assert await asyncio.wait_for(not_logged_in.read(), LONG_S) == b""
        silent.close()
        await clients["bob"].ping()
        await clients["bob"].disconnect()


async def test_a_handshake_that_began_before_a_revocation_lets_no_client_in(tmp_path: Path) -> None:
    """A request for a WebSocket comes as long after the handshake as its client likes."""
    authority = Authority(tmp_path)
    tls = mutual(tmp_path, authority, client_crl=str(authority.revoke())).tls
    alice = client_context(authority, authority.sign("alice", ["alice"]))
    async with hosting(WebSocketConfig(port=0, tls=tls)) as host:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_number(host), ssl=alice)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n")
        await writer.drain()
        authority.revoke("alice")
        host.listeners.reload()
        writer.write(b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n")
        writer.write(b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), LONG_S)).startswith(b"HTTP/1.1 403 ")
        writer.close()


@pytest.mark.parametrize(
    "case", ["out of date", "another authority's", "signed with another key", "missing", "no list"]
)
async def test_a_list_that_would_keep_every_client_out_is_not_taken(tmp_path: Path, case: str) -> None:
    authority = Authority(tmp_path)
    stranger = Authority(tmp_path / "other", "stranger" if case == "another authority's" else "authority")
    bob = authority.sign("bob", ["bob"])
    crl = authority.revoke("bob")
    complaint = {
        "out of date": "a revocation list is out of date since 20",
        "another authority's": f"expected the revocation list of an authority in {authority.path}, and it is another's",
        "signed with another key": f"of an authority in {authority.path}, which another key than its own has signed",
        "missing": "No such file",
        "no list": "expected revocation lists in PEM",
    }[case]
    alice = client_context(authority, authority.sign("alice", ["alice"]))
    config = mutual(tmp_path, authority, client_crl=str(crl))
    async with hosting(config) as host:
        if case == "out of date":
            authority.revoke("bob", life=-LIFE / 2)
        elif case in ("another authority's", "signed with another key"):
            crl.write_bytes(stranger.revoke().read_bytes())
        elif case == "missing":
            crl.unlink()
        else:
            crl.write_text("")
        with pytest.raises(ConfigError, match=complaint):
            host.listeners.reload()
        assert await is_let_in(host, alice)
        assert not await is_let_in(host, client_context(authority, bob))
    if case != "out of date":
        assert config.tls is not None
        with pytest.raises(ConfigError, match=complaint):
            Tls(config.tls)


async def test_a_session_that_is_resumed_does_not_outlive_its_certificate(tmp_path: Path) -> None:
    """OpenSSL checks a certificate in a whole handshake alone."""
    authority = Authority(tmp_path)
    tls = Tls(mutual(tmp_path, authority).tls)  # type: ignore[arg-type]
    subject = ((("commonName", "bob"),),)
    assert tls.user_of({"subject": subject, "notAfter": "Jan  1 00:00:00 2100 GMT"}) == "bob"
    with pytest.raises(CertificateRefusedError, match="its certificate is out of date since Jan  1 00:00:00 2026 GMT"):
        tls.user_of({"subject": subject, "notAfter": "Jan  1 00:00:00 2026 GMT"})


async def test_with_a_list_that_is_out_of_date_at_the_start_no_client_gets_in_until_there_is_a_new_one(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    alice = client_context(authority, authority.sign("alice", ["alice"]))
    config = mutual(tmp_path, authority, client_crl=str(authority.revoke(life=-LIFE / 2)))
    async with hosting(config) as host:
        assert not await is_let_in(host, alice)
        host.listeners.reload()  # a new certificate of the gateway's own would be taken
        ((place, validity),) = [one for one in host.listeners.certificates() if one[1].problem(datetime.now(UTC))]
        assert place.startswith("listener tcp with TLS") and "revoked.pem: out of date since" in validity.problem(
            datetime.now(UTC)
        )
        authority.revoke()
        host.listeners.reload()
        assert await is_let_in(host, alice)


async def test_an_intermediate_authority_that_its_root_has_revoked_admits_no_client(tmp_path: Path) -> None:
    """The root's list and its own are there; one of its own alone says nothing of the authority itself."""
    root = Authority(tmp_path / "root", "root")
    between = Authority(tmp_path / "between", "between", root)
    chain, key = between.sign("alice", ["alice"])
    chain.write_bytes(chain.read_bytes() + between.path.read_bytes())
    alice = client_context(root, (chain, key))
    lists, known = tmp_path / "lists.pem", tmp_path / "known.pem"
    known.write_bytes(root.path.read_bytes() + between.path.read_bytes())

    def revoke(by_root: list[str] | None, by_between: list[str]) -> None:
        of_root = root.revoke(*by_root).read_bytes() if by_root is not None else b""
        lists.write_bytes(of_root + between.revoke(*by_between).read_bytes())

    revoke([], [])
    certificate, server_key = root.server()
    tls = TlsConfig(str(certificate), str(server_key), client_ca=str(known), client_crl=str(lists))
    async with hosting(TcpConfig(port=0, tls=tls)) as host:
        for by_root, by_between, is_in in [
            ([], [], True),
            (["between"], [], False),
            ([], ["alice"], False),
            (None, [], True),
            (None, ["alice"], False),
        ]:
            revoke(by_root, by_between)
            host.listeners.reload()
            assert await is_let_in(host, alice) == is_in, (by_root, by_between)


def old_client(authority: Authority, version: ssl.TLSVersion) -> ssl.SSLContext:
    """A client of one version of TLS that would take any suite."""
    context = client_context(authority)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    return context


@pytest.mark.parametrize("lowest", VERSIONS)
async def test_a_listener_speaks_its_lowest_version_of_tls_and_later_ones(tmp_path: Path, lowest: Version) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server()
    async with hosting(TcpConfig(port=0, tls=TlsConfig(str(certificate), str(key), minimum_version=lowest))) as host:
        for name, version in VERSIONS.items():
            assert await is_let_in(host, old_client(authority, version)) == (name >= lowest), name


async def answer_to_openssl(host: Host, *options: str) -> str:
    """What `openssl s_client` says of a connection."""
    place = f"127.0.0.1:{port_number(host)}"
    process = await asyncio.create_subprocess_exec(
        *("openssl", "s_client", "-brief", "-connect", place, *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), LONG_S)
    return output.decode()


async def test_openssl_finds_our_suites_at_a_listener_and_no_others(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server()
    async with hosting(TcpConfig(port=0, tls=TlsConfig(str(certificate), str(key)))) as host:
        found = await answer_to_openssl(host, "-tls1_2", "-cipher", "ALL:@SECLEVEL=0")
        assert "Protocol version: TLSv1.2" in found and "Ciphersuite: ECDHE-ECDSA-AES256-GCM-SHA384" in found
        found = await answer_to_openssl(host, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256")
        assert "Ciphersuite: ECDHE-ECDSA-AES128-GCM-SHA256" in found
        for others in ("ECDHE-ECDSA-AES256-SHA384:ECDHE-ECDSA-AES128-SHA256", "ALL:-AESGCM:-CHACHA20"):  # CBC
            assert "Ciphersuite" not in await answer_to_openssl(host, "-tls1_2", "-cipher", others), others
        for old in ("-tls1", "-tls1_1"):
            assert "Ciphersuite" not in await answer_to_openssl(host, old, "-cipher", "ALL:@SECLEVEL=0")
        assert "Ciphersuite: TLS_AES_256_GCM_SHA384" in await answer_to_openssl(host, "-tls1_3")
    named = TlsConfig(str(certificate), str(key), ciphers="ECDHE-ECDSA-AES128-SHA256")
    async with hosting(TcpConfig(port=0, tls=named)) as host:
        assert "Ciphersuite: ECDHE-ECDSA-AES128-SHA256" in await answer_to_openssl(host, "-tls1_2")
        assert "Ciphersuite" not in await answer_to_openssl(host, "-tls1_2", "-cipher", "AESGCM")


async def test_plain_bytes_where_tls_is_spoken_end_that_connection_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with hosting(mutual(tmp_path, authority)) as host:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_number(host))
        writer.write(b"\x10\x10\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00\x00")
        await asyncio.wait_for(reader.read(), LONG_S)
        writer.close()
        assert await is_let_in(host, client_context(authority, authority.sign("alice", ["alice"])))


@pytest.mark.parametrize("kind", [TcpConfig, WebSocketConfig])
async def test_a_renewed_certificate_is_shown_to_new_clients_and_the_others_stay(
    tmp_path: Path, kind: type[TcpConfig | WebSocketConfig]
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server()
    async with hosting(kind(port=0, tls=TlsConfig(str(certificate), str(key)))) as host:

        async def shown() -> tuple[bytes | None, asyncio.StreamWriter]:
            context = client_context(authority)
            _, writer = await asyncio.open_connection("127.0.0.1", port_number(host), ssl=context)
            return writer.get_extra_info("ssl_object").getpeercert(binary_form=True), writer

        before, writer_before = await shown()
        authority.server()
        host.listeners.reload()
        after, writer_after = await shown()
        assert before != after
        if kind is TcpConfig:
            old, new = await host.next_port(), await host.next_port()
            writer_before.write(b"still here")
            assert await asyncio.wait_for(old.receive(), LONG_S) == b"still here"
            new.close()
        key.write_text("no key")
        with pytest.raises(
            ConfigError, match=r"server.pem: expected a certificate in PEM whose key is in .*server.key"
        ):
            host.listeners.reload()
        last, writer_last = await shown()
        assert last == after
        for writer in (writer_before, writer_after, writer_last):
            writer.close()


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = map(str, authority.server())
    other_key = str(authority.sign("other", ["other"])[1])
    empty, absent = tmp_path / "empty.pem", str(tmp_path / "absent.pem")
    empty.write_text("")
    for config, complaint in [
        (TlsConfig(absent, key), rf"^{absent}: No such file or directory$"),
        (TlsConfig(certificate, absent), rf"^{absent}: No such file or directory$"),
        (TlsConfig(str(empty), key), rf"^{empty}: expected a certificate in PEM whose key is in {key}"),
        (TlsConfig(certificate, other_key), rf"whose key is in {other_key}: key values mismatch$"),
        (TlsConfig(certificate, key, client_ca=str(empty)), rf"^{empty}: expected certificates of authorities in PEM"),
        (
            TlsConfig(certificate, key, client_ca=str(authority.path), client_crl=certificate),
            rf"^{certificate}: expected revocation lists in PEM",
        ),
    ]:
        with pytest.raises(ConfigError, match=complaint):
            Tls(config)


def test_a_certificate_or_revocation_list_that_is_out_of_date_is_told_from_one_that_is_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server()
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + authority.path.read_bytes())
    files = [certificate, both, authority.revoke("server")]
    dated = [validities(str(file)) for file in files]
    assert list(map(len, dated)) == [1, 1, 1]
    now = datetime.now(UTC)
    for (one,), file in zip(dated, files, strict=True):
        assert (one.problem(now), one.note(now)) == ("", "")
        near, later = one.ends - timedelta(minutes=1), now + LIFE + timedelta(minutes=1)
        assert (one.problem(near), one.note(near)) == ("", f"{file}: out of date from {one.ends:%Y-%m-%dT%H:%M:%SZ} on")
        assert one.problem(later).startswith(f"{file}: out of date since 20") and not one.note(later)
        before = one.begins - timedelta(minutes=1)
        assert one.problem(before) == (
            f"{file}: not valid before {one.begins:%Y-%m-%dT%H:%M:%SZ}, and it is {before:%Y-%m-%dT%H:%M:%SZ} by this "
            "machine's clock"
        )
    assert validities(str(key)) == []
