"""Parts of a site that were restored from a backup: no certificate comes back to life, and no name is given twice."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from tools.cli.site.commands.looking import listed, strays
from tools.cli.site.errors import NameTaken, SiteError
from tools.cli.site.giving import Wish
from tools.cli.site.ledger import FILE, PASSWORD
from tools.cli.site.making import make_site
from tools.cli.site.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    make_site(tmp_path / "site", "hill")
    return Site.open(tmp_path / "site")


def with_old_ledger(site: Site, change: Callable[[], object]) -> None:
    """Makes a change, and puts the ledger from before it back."""
    old = site.places.folder / "old"
    shutil.copy(site.places.folder / FILE, old)
    change()
    for path in site.places.folder.glob(f"{FILE}*"):
        path.unlink()
    old.rename(site.places.folder / FILE)


def states(site: Site) -> list[tuple[str, str]]:
    return [(line.name, line.state) for line in site.lines().values()]


def serials_on_list(site: Site) -> set[str]:
    return {f"{one.serial_number:x}" for one in x509.load_pem_x509_crl(site.places.revoked.read_bytes())}


def test_what_an_old_ledger_does_not_know_is_brought_in_again(site: Site) -> None:
    site.give("barn")
    with_old_ledger(site, lambda: site.give_all([Wish("attic"), Wish("cellar", PASSWORD)]))
    assert len(list(strays(site))) == 4  # two folders, two blocks of rules
    with pytest.raises(NameTaken, match="'attic' was given"):
        site.give("attic")
    assert states(site) == [("barn", "given"), ("attic", "given"), ("cellar", "given")]
    assert [note.split(",")[0] for note in site.notes] == [
        f"the ledger had no line of {n}" for n in ("attic", "cellar")
    ]
    assert list(strays(site)) == [] and [one.problems for one in listed(site)] == [[], [], []]
    site.revoke(["attic", "cellar"])
    assert "attic" not in site.places.access.read_text()


def test_what_was_revoked_stays_revoked_under_an_old_ledger(site: Site) -> None:
    attic = site.give("attic")
    with_old_ledger(site, lambda: site.revoke(["attic"]))
    assert states(site) == [("attic", "given")]
    (seen,) = listed(site)
    assert seen.problems[0] == "its certificate is on the revocation list: the ledger is older" and not seen.has_files
    again = site.give("attic")
    assert states(site) == [("attic", "revoked"), ("attic", "given")]
    assert serials_on_list(site) == {attic.line.serial} and again.line.serial != attic.line.serial
    site.revoke(["attic"])
    assert serials_on_list(site) == {attic.line.serial, again.line.serial}


def test_a_name_that_was_given_again_keeps_its_new_certificate_under_an_old_ledger(site: Site) -> None:
    first = site.give("attic")

    def anew() -> None:
        site.revoke(["attic"])
        site.give("attic")

    with_old_ledger(site, anew)
    site.give("barn")
    second = site.find("attic")
    assert second is not None and second.line.serial != first.line.serial
    assert second.certificate.exists() and "allow attic connect attic" in site.places.access.read_text()
    assert serials_on_list(site) == {first.line.serial}


def test_an_old_revocation_list_gets_what_it_lacks(site: Site) -> None:
    attic = site.give("attic")
    old = site.places.revoked.read_bytes()
    site.revoke(["attic"])
    site.places.revoked.write_bytes(old)
    assert listed(site)[0].problems == [
        "its certificate is not on the revocation list: the next change brings it there"
    ]
    site.give("barn")
    assert serials_on_list(site) == {attic.line.serial}
    site.places.revoked.unlink()
    site.give("cellar")
    assert serials_on_list(site) == {attic.line.serial}


def test_a_device_without_folder_and_line_is_known_by_its_rules(site: Site, tmp_path: Path) -> None:
    """The key was taken off the site's machine, as one should, and the ledger is old."""
    kept = tmp_path / "kept"
    with_old_ledger(site, lambda: shutil.move(site.give("attic").folder, kept))
    with pytest.raises(
        NameTaken, match="has access rules, and no line in the ledger: is the ledger from an old backup"
    ):
        site.give("attic")
    site.revoke(["attic"])
    assert "revoke that too: `holdfast site revoke --certificate FILE`" in site.notes[-1]
    site.revoke_certificate((kept / "certificate.pem").read_bytes(), "kept")
    again = site.give("attic")
    assert len(serials_on_list(site)) == 1 and again.line.serial not in serials_on_list(site)


def test_a_folder_that_is_not_of_this_site_is_left_alone_and_its_name_is_not_given(site: Site, tmp_path: Path) -> None:
    make_site(tmp_path / "other", "hill")
    shutil.copytree(Site.open(tmp_path / "other").give("attic").folder, site.places.devices / "attic")
    with pytest.raises(NameTaken, match="'attic' has a folder that the ledger does not know; move it away"):
        site.give("attic")
    assert "a certificate that is not of this site" in site.notes[0]
    site.give("barn")
    assert states(site) == [("barn", "given")] and (site.places.devices / "attic").exists()


def test_a_damaged_ledger_is_refused(site: Site) -> None:
    site.give("attic")
    path = site.places.folder / FILE
    content = path.read_bytes()
    assert content.count(b"attic") == 1
    path.write_bytes(content.replace(b"attic", b"attik"))
    for beside in site.places.folder.glob(f"{FILE}-*"):
        beside.unlink()
    with pytest.raises(SiteError, match=r"ledger.sqlite: 1 of its lines are damaged; restore it from a backup"):
        site.give("barn")
    path.write_bytes(b"no database, and long enough to be looked at as one" * 100)
    with pytest.raises(SiteError, match=r"ledger.sqlite: file is not a database"):
        site.lines()


def test_a_certificate_that_was_renewed_stays_valid_under_an_old_ledger(site: Site) -> None:
    first = site.give("attic")
    with_old_ledger(site, lambda: site.renew(["attic"]))
    site.give("next")
    assert states(site)[:2] == [("attic", "replaced"), ("attic", "given")]
    assert first.line.serial not in serials_on_list(site)
