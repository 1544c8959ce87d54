"""What a site gives: certificates, accounts, access rules, a ledger; and what it refuses."""

import json
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from device.config import load
from gateway.auth.accounts import is_password, load_accounts, make_account, save_account
from gateway.auth.permissions import Access
from host.errors import ConfigError, HostError
from tests.house.repository import ROOT
from tools.cli.site.authority import Authority, new_serial
from tools.cli.site.commands.looking import listed
from tools.cli.site.errors import NameTaken, SiteError
from tools.cli.site.giving import Wish
from tools.cli.site.keys import key_pem, new_key
from tools.cli.site.ledger import GATEWAY, PASSWORD
from tools.cli.site.making import make_site
from tools.cli.site.rules import Rights
from tools.cli.site.site import Site

DAY = timedelta(days=1)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    make_site(tmp_path / "site", "hill")
    return Site.open(tmp_path / "site")


def certificate_in(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_certificate_names_the_device_and_is_for_clients_alone(site: Site) -> None:
    given = site.give("attic")
    certificate = certificate_in(given.certificate)
    assert certificate.subject.rfc4514_string() == "CN=attic"
    certificate.verify_directly_issued_by(certificate_in(given.authority))
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert f"{certificate.serial_number:x}" == given.line.serial
    context = ssl.create_default_context()
    context.load_cert_chain(given.certificate, given.key)  # they belong together


def test_validity_is_as_asked_and_not_longer_than_the_authoritys(tmp_path: Path) -> None:
    make_site(tmp_path / "site", "hill", days=100)
    site = Site.open(tmp_path / "site")
    now = datetime.now(UTC)
    short, long = site.give_all([Wish("short", days=7), Wish("long", days=1000)])
    for given, days in ((short, 7), (long, 100)):
        ends = certificate_in(given.certificate).not_valid_after_utc
        assert ends == given.ends and abs(ends - now - days * DAY) < timedelta(minutes=5)
    authority = certificate_in(site.places.authority)
    revoked = x509.load_pem_x509_crl(site.places.revoked.read_bytes())
    assert now - authority.not_valid_before_utc > DAY / 2
    assert certificate_in(short.certificate).not_valid_before_utc == authority.not_valid_before_utc
    assert revoked.last_update_utc == authority.not_valid_before_utc
    assert revoked.next_update_utc == authority.not_valid_after_utc == site.authority.ends


def test_serial_numbers_are_random_and_above_0() -> None:
    numbers = {new_serial() for _ in range(1000)}
    assert len(numbers) == 1000
    assert all(0 < one < 2**127 and one.bit_length() == 127 for one in numbers)


def test_a_device_may_do_what_its_rules_say_and_stays_alone_with_them(site: Site) -> None:
    site.give_all([Wish("attic"), Wish("cellar", rights=Rights(["plant/%u/#"], []))])
    access = Access(site.places.access, "gw")
    attic, cellar = (access.permissions(name, name, "") for name in ("attic", "cellar"))
    assert attic.may_connect("attic") and not attic.may_connect("cellar") and not attic.may_connect("attic-2")
    topics = ("telemetry/attic", "telemetry/attic/answer", "status/attic", "telemetry/cellar", "plant/cellar/a")
    assert [attic.may_publish(topic) for topic in topics] == [True, True, True, False, False]
    assert [cellar.may_publish(topic) for topic in topics] == [False, False, False, False, True]
    assert attic.may_subscribe("commands/attic/#") and attic.may_receive("telemetry/attic/session/0")
    assert not attic.may_receive("commands/cellar/a") and not cellar.may_subscribe("#")
    assert attic.may_identify("attic") and not attic.may_identify("cellar") and not attic.may_vouch("attic")


def test_rules_of_an_operator_stay_where_they_are(site: Site) -> None:
    own = "allow alice connect alice*\nallow alice subscribe #\n"
    site.places.access.write_text(own)
    site.give_all([Wish("attic"), Wish("cellar")])
    site.places.access.write_text(site.places.access.read_text() + "allow bob connect bob")
    site.revoke(["attic"])
    text = site.places.access.read_text()
    assert text.startswith(own) and text.endswith("allow bob connect bob\n")
    assert "attic" not in text and "allow cellar connect cellar" in text


def test_an_account_has_a_password_that_is_in_one_file_alone(site: Site) -> None:
    given = site.give("attic", PASSWORD)
    password = given.password.read_text().strip()
    account = load_accounts(site.places.accounts)["attic"]
    assert is_password(password.encode(), account.password_hash) and account.scram is not None
    holders = [
        path for path in site.places.folder.rglob("*") if path.is_file() and password in path.read_text("latin1")
    ]
    assert holders == [given.password]
    assert password not in repr(given) and given.ends is None


def test_secrets_are_closed_to_other_users(site: Site) -> None:
    site.give_all([Wish("attic"), Wish("cellar", PASSWORD), Wish("gw", GATEWAY, hosts=["gw.local"])])
    public = {site.places.authority, site.places.revoked, site.places.access}
    files = {path for path in site.places.folder.rglob("*") if path.is_file()}
    assert public < files and len(files) >= 9
    for path in files - public:
        assert path.stat().st_mode & 0o777 == 0o600, path
    for folder in (site.places.devices, site.places.gateways, site.places.devices / "attic"):
        assert folder.stat().st_mode & 0o777 == 0o700, folder


def test_the_keys_for_a_configuration_are_ones_that_the_firmware_takes(site: Site, tmp_path: Path) -> None:
    certificate, password = site.give_all([Wish("attic"), Wish("cellar", PASSWORD)])
    assert certificate.port("tls") == {
        "kind": "tls",
        "ca": "tls/authority.der",
        "certificate": "tls/certificate.der",
        "key": "tls/key.der",
    }
    assert password.port()["password"] == password.password.read_text().strip()
    assert set(certificate.board_files()) == {"authority.der", "certificate.der", "key.der"}
    assert set(password.board_files()) == {"authority.der"}
    for given in (certificate, password):
        port = {**given.port(), "host": "gw.local"}
        config = {"client_id": given.name, "topic": "a", "port": port, "flash": {"path": "store"}}
        path = tmp_path / f"{given.name}.json"
        path.write_text(json.dumps({**config, "interval_ms": 1000, "sensors": ["host"]}))
        assert load(str(path)).ports[0].ca == "authority.der"


def test_a_name_is_given_once_until_it_is_revoked(site: Site) -> None:
    first = site.give("attic", holder="board 1")
    assert site.give("attic", holder="board 1") == first
    for again in ("board 2", ""):
        with pytest.raises(NameTaken, match=r"'attic' was given on 20.* to board 1; `holdfast site revoke attic` ends"):
            site.give("attic", holder=again)
    with pytest.raises(NameTaken):
        site.give_all([Wish("cellar"), Wish("attic")])
    assert site.find("cellar") is None and not (site.places.devices / "cellar").exists()
    site.revoke(["attic"])
    assert site.find("attic") is None
    second = site.give("attic", holder="board 2")
    assert second.line.serial != first.line.serial
    assert [(one.name, one.state) for one in site.lines().values()] == [("attic", "revoked"), ("attic", "given")]


def test_what_is_revoked_is_on_the_list_and_nothing_of_it_is_left(site: Site) -> None:
    given = site.give_all([Wish("attic"), Wish("cellar", PASSWORD), Wish("gw", GATEWAY, hosts=["gw"]), Wish("barn")])
    assert [line.state for line in site.revoke(["attic", "cellar", "gw"])] == ["revoked"] * 3
    revoked = x509.load_pem_x509_crl(site.places.revoked.read_bytes())
    assert {f"{one.serial_number:x}" for one in revoked} == {given[0].line.serial, given[2].line.serial}
    assert load_accounts(site.places.accounts) == {}
    assert not any(one.folder.exists() for one in given[:3]) and given[3].folder.exists()
    assert "cellar" not in site.places.access.read_text()
    with pytest.raises(SiteError, match="'attic' has nothing of this site"):
        site.revoke(["barn", "attic"])
    assert site.find("barn") is not None


@pytest.mark.parametrize("name", ["", "*", "-", ".attic", "a/b", "a b", "a:b", "é", "a\nb", "x" * 65, "../a"])
def test_a_name_that_cannot_be_a_user_is_refused(site: Site, name: str) -> None:
    with pytest.raises(SiteError, match="cannot be a name: expected at most 64 letters, digits and"):
        site.give_all([Wish("attic"), Wish(name)])
    assert site.lines() == {}


def test_names_that_others_have_are_refused(site: Site) -> None:
    save_account(site.places.accounts, make_account("alice", b"secret", with_scram=False))
    with pytest.raises(NameTaken, match="'alice' has an account that this site has not made"):
        site.give("alice")
    with pytest.raises(SiteError, match="'attic' is named twice"):
        site.give_all([Wish("attic"), Wish("attic")])
    with pytest.raises(SiteError, match="'gw': expected a host name or an address"):
        site.give_all([Wish("gw", GATEWAY)])
    with pytest.raises(ConfigError, match=r"access:\d+: "):
        site.give("attic", rights=Rights(["telemetry/#/a"], []))
    site.give("attic", rights=Rights(["telemetry"], []))  # it had begun
    assert [line.name for line in site.lines().values()] == ["attic"]


def test_a_folder_that_is_no_site_or_not_whole_is_refused(site: Site, tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="not a site; `holdfast site init` makes one"):
        Site.open(tmp_path)
    for taken, complaint in ((site.places.folder, "it is a site already"), (tmp_path, "expected an empty folder")):
        with pytest.raises(SiteError, match=complaint):
            make_site(taken, "hill")
    (tmp_path / "empty").mkdir()
    make_site(tmp_path / "empty", "valley")
    foreign = Site.open(tmp_path / "empty").places
    ours = site.places.key.read_bytes()
    site.places.key.write_bytes(foreign.key.read_bytes())
    with pytest.raises(SiteError, match=r"authority.key: it is the key of another authority"):
        site.give("attic")
    site.places.key.chmod(0o644)
    with pytest.raises(HostError, match="others may read or change it"):
        Site.open(site.places.folder).give("attic")
    site.places.key.chmod(0o600)
    site.places.key.write_bytes(ours)
    site.places.revoked.write_bytes(foreign.revoked.read_bytes())
    with pytest.raises(SiteError, match=r"revoked.pem: a revocation list that is not of this site"):
        site.give("attic")
    assert site.lines() == {}
    (site.places.folder / "ledger.sqlite").unlink()
    with pytest.raises(SiteError, match=r"ledger.sqlite: the ledger is not there; restore it"):
        site.give("attic")


def test_only_a_certificate_of_this_site_can_be_revoked_by_its_file(site: Site, tmp_path: Path) -> None:
    make_site(tmp_path / "other", "hill")
    other = Site.open(tmp_path / "other").give("attic")
    with pytest.raises(SiteError, match="other: a certificate that is not of this site"):
        site.revoke_certificate(other.certificate.read_bytes(), "other")
    with pytest.raises(SiteError, match="none: expected a certificate in PEM"):
        site.revoke_certificate(b"", "none")
    given = site.give("attic")
    (line,) = site.revoke_certificate(given.certificate.read_bytes(), "own")
    assert (line.name, line.state) == ("attic", "revoked") and not given.folder.exists()


def test_without_the_passphrase_a_site_key_signs_nothing(tmp_path: Path) -> None:
    make_site(tmp_path / "site", "hill", passphrase=b"under the roof")
    folder = tmp_path / "site"
    assert b"ENCRYPTED PRIVATE KEY" in (folder / "authority.key").read_bytes()
    for passphrase in (b"", b"another one"):
        with pytest.raises(SiteError, match=r"authority.key: the passphrase does not open it"):
            Site.open(folder, lambda passphrase=passphrase: passphrase).give("attic")  # type: ignore[misc]
    with pytest.raises(SiteError, match="the site key is encrypted: expected its passphrase"):
        Site.open(folder).give("attic")
    Site.open(folder).give("cellar", PASSWORD)  # it needs no signature
    given = Site.open(folder, lambda: b"under the roof").give("attic")
    with pytest.raises(SiteError, match="expected its passphrase"):
        Site.open(folder).revoke(["attic"])
    assert given.folder.exists()
    with pytest.raises(SiteError, match="a passphrase of at least 8"):
        make_site(tmp_path / "other", "hill", passphrase=b"short")


def test_each_authority_has_a_name_of_its_own(tmp_path: Path) -> None:
    names = set()
    for place in ("a", "b"):
        make_site(tmp_path / place, "hill")
        authority = (tmp_path / place / "gateway/authority.pem").read_bytes()
        names.add(certificate_in(tmp_path / place / "gateway/authority.pem").subject.rfc4514_string())
        assert Authority(authority, place).site == "hill"
    assert len(names) == 2
    assert not Authority(authority, "b").is_of(new_key())
    with pytest.raises(SiteError, match="expected a certificate in PEM"):
        Authority(key_pem(new_key()), "key")


def test_of_two_that_ask_for_one_name_at_once_one_gets_it(site: Site) -> None:
    names = [f"device-{number}" for number in range(4)]

    def ask(name: str) -> str | None:
        try:
            return Site.open(site.places.folder).give(name).line.serial
        except NameTaken:
            return None

    with ThreadPoolExecutor(8) as threads:
        serials = [one for one in threads.map(ask, names * 2) if one is not None]
    assert sorted(serials) == sorted(line.serial for line in site.lines().values())
    assert sorted(line.name for line in site.lines().values()) == names


def listed_serials(site: Site) -> set[str]:
    return {f"{one.serial_number:x}" for one in x509.load_pem_x509_crl(site.places.revoked.read_bytes())}


def test_a_renewed_certificate_is_valid_beside_the_former_one_until_that_is_revoked(site: Site) -> None:
    first = site.give("attic", holder="board 24:6f")
    key = first.key.read_bytes()
    access = site.places.access.read_text()
    (second,) = site.renew(["attic"], days=30)
    assert second.line.holder == "board 24:6f" and second.line.serial != first.line.serial
    assert f"{certificate_in(second.certificate).serial_number:x}" == second.line.serial
    assert second.key.read_bytes() != key and listed_serials(site) == set()
    assert site.places.access.read_text() == access
    assert [(one.line.state, one.has_files) for one in listed(site)] == [("replaced", False), ("given", True)]
    assert "--former" in listed(site)[0].problems[0]

    (ended,) = site.revoke_former(["attic"])
    assert ended.serial == first.line.serial and listed_serials(site) == {first.line.serial}
    assert site.find("attic") is not None and site.places.access.read_text() == access
    with pytest.raises(SiteError, match="taken the place of"):
        site.revoke_former(["attic"])


def test_the_end_of_a_name_ends_its_former_certificates_too(site: Site) -> None:
    first = site.give("attic")
    second, third = site.renew(["attic"])[0], site.renew(["attic"])[0]
    site.revoke(["attic"])
    assert listed_serials(site) == {one.line.serial for one in (first, second, third)}
    assert site.find("attic") is None


def test_what_has_no_certificate_is_not_renewed(site: Site) -> None:
    site.give("barn", PASSWORD)
    for name in ("barn", "unknown"):
        with pytest.raises(SiteError, match="no certificate of this site to renew"):
            site.renew([name])


def test_rules_of_the_owner_that_outlive_a_device_are_named_with_file_and_line(site: Site) -> None:
    site.give("attic")
    before = site.places.access.read_text()
    own = "allow attic publish site/door\n# allow attic publish no/rule\nallow attic-2 publish x\n"
    site.places.access.write_text(own + before)
    site.revoke(["attic"])
    (note,) = site.notes
    assert note.startswith(f"{site.places.access}:1: a rule of your own for attic stays")
    assert site.places.access.read_text().startswith(own)


def test_the_ledger_is_read_from_a_disk_that_cannot_be_written(site: Site, tmp_path: Path) -> None:
    site.give("attic")
    command = f'mount --bind {tmp_path} {tmp_path} && mount -o remount,ro,bind {tmp_path} && exec "$@"'
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", command, "sh"]
    argv += [sys.executable, "-m", "tools.cli.main", "site", "list", "--site", str(site.places.folder)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("this user may make no namespace with a read-only disk")
    assert done.returncode == 0 and "attic" in done.stdout, done.stderr
