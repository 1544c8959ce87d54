"""What an attacker may have prepared for an operator of `holdfast site`: certificates, names, locks."""

import fcntl
import os
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.command import holdfast
from tools.cli.site.errors import SiteError
from tools.cli.site.giving import Wish
from tools.cli.site.ledger import GATEWAY
from tools.cli.site.making import make_site
from tools.cli.site.rules import names_in, without_block
from tools.cli.site.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    make_site(tmp_path / "site", "hill")
    return Site.open(tmp_path / "site")


def forged(site: Site, *names: str) -> bytes:
    """A certificate as the thief of the site key makes it, with these common names."""
    key = serialization.load_pem_private_key(site.places.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    authority = x509.load_pem_x509_certificate(site.places.authority.read_bytes())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(authority.subject)
    builder = builder.public_key(ec.generate_private_key(ec.SECP256R1()).public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(authority.not_valid_before_utc)
    certificate = builder.not_valid_after(authority.not_valid_after_utc).sign(key, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM)


def contents(folder: Path) -> dict[Path, bytes]:
    """The files of a site, except the files that each revocation changes."""
    found = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    return {path: content for path, content in found.items() if not path.name.startswith(("ledger", "revoked"))}


@pytest.mark.parametrize("names", [["../gateway"], ["..", "."], ["."], [], ["../../precious"], ["a\x1b[2Jb"]])
def test_a_certificate_whose_name_is_a_path_is_revoked_and_no_file_goes_with_it(
    site: Site, tmp_path: Path, names: list[str]
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    site.give("attic")
    before = contents(tmp_path)
    pem = forged(site, *names)
    path = tmp_path / "forged.pem"
    path.write_bytes(pem)
    done = holdfast("site", "revoke", "--site", str(site.places.folder), "--certificate", str(path))
    assert done.exit_code == 0 and "\x1b" not in done.stdout
    path.unlink()
    assert contents(tmp_path) == before
    serial = x509.load_pem_x509_certificate(pem).serial_number
    listed = x509.load_pem_x509_crl(site.places.revoked.read_bytes())
    assert listed.get_revoked_certificate_by_serial_number(serial) is not None
    site.give("cellar")
    assert contents(tmp_path).keys() > before.keys()
    assert "\x1b" not in holdfast("site", "list", "--site", str(site.places.folder)).stdout


def test_the_authoritys_own_certificate_is_not_revoked_as_no_device_could_connect_any_more(site: Site) -> None:
    with pytest.raises(SiteError, match=r"authority.pem: the certificate of the authority itself"):
        site.revoke_certificate(site.places.authority.read_bytes(), "authority.pem")
    assert not list(x509.load_pem_x509_crl(site.places.revoked.read_bytes())) and not site.lines()


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_a_line_of_the_access_rules_ends_where_the_gateway_ends_it_and_nowhere_else(site: Site, sign: str) -> None:
    path = site.places.access
    comment = f"# mine{sign}allow * publish #\n".encode()
    path.write_bytes(path.read_bytes() + comment)
    site.give("attic")
    assert comment in path.read_bytes()
    site.revoke(["attic"])
    assert comment in path.read_bytes()
    assert names_in(f"# mine{sign}# holdfast site, begin: attic\n") == []


def test_a_block_of_a_file_from_an_editor_with_crlf_is_found(tmp_path: Path) -> None:
    text = "# mine\r\n# holdfast site, begin: attic\r\nallow attic connect attic\r\n# holdfast site, end: attic\r\n"
    assert names_in(text) == ["attic"]
    assert without_block(text, "attic", tmp_path) == "# mine\r\n"


@pytest.mark.parametrize(
    "host", ["", "b\u00fccher.local", "a b", "a/b", "https://shed.local", "-a.local", "x" * 64, "a..b"]
)
def test_a_host_name_that_no_certificate_can_have_is_refused_and_nothing_begins(site: Site, host: str) -> None:
    with pytest.raises(SiteError, match="'shed': expected a host name or an address"):
        site.give_all([Wish("shed", GATEWAY, hosts=["shed.local", host])])
    assert not site.lines()
    for number, good in enumerate(
        ["shed", "shed.local", "192.168.1.10", "::1", "*.local", "xn--bcher-kva.local", "a_b"]
    ):
        site.give_all([Wish(f"gw-{number}", GATEWAY, hosts=[good])])


def test_a_lock_on_what_all_users_can_read_holds_no_change_up(site: Site) -> None:
    """Any user may lock a file that they can open, also for reading."""
    site.give("attic")
    open_to_others = [site.places.folder, *site.places.folder.rglob("*")]
    held = []
    try:
        for path in open_to_others:
            if path.stat().st_mode & 0o004:
                held.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                fcntl.flock(held[-1], fcntl.LOCK_EX)
        assert len(held) > 3
        site.give("cellar")
        site.revoke(["attic"])
    finally:
        for descriptor in held:
            os.close(descriptor)


def test_a_site_is_not_made_of_what_another_user_has_put_there(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / ".site.making").symlink_to(elsewhere)
    with pytest.raises(SiteError, match=r"\.site\.making: another user has made it"):
        make_site(tmp_path / "site", "hill")
    assert not list(elsewhere.iterdir()) and not (tmp_path / "site").exists()


def test_what_a_process_that_was_killed_has_left_is_no_part_of_a_site(tmp_path: Path) -> None:
    making = tmp_path / ".site.making"
    (making / "devices" / "attic").mkdir(parents=True)
    (making / "authority.key").write_text("half")
    make_site(tmp_path / "site", "hill")
    assert not making.exists() and not list((tmp_path / "site" / "devices").iterdir())
    Site.open(tmp_path / "site").give("attic")
