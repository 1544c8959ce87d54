"""A site over years: certificates and an authority that end, clocks that are wrong, files that are gone."""

import errno
import os
import resource
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from host.files import write_new
from tools.cli.site.authority import Authority, make_authority
from tools.cli.site.commands.looking import end_words, listed
from tools.cli.site.errors import NameTaken, SiteError
from tools.cli.site.giving import Wish
from tools.cli.site.keys import read_key
from tools.cli.site.ledger import GATEWAY, PASSWORD
from tools.cli.site.making import check_clock, make_site
from tools.cli.site.site import Site

DAY = timedelta(days=1)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    make_site(tmp_path / "site", "hill")
    return Site.open(tmp_path / "site")


def with_authority(site: Site, begins: datetime, days: int) -> Site:
    """Gives the site's key another certificate."""
    key = read_key(site.places.key.read_bytes(), None, "key")
    pem = make_authority("hill", key, days, begins)
    site.places.authority.write_bytes(pem)
    site.places.revoked.write_bytes(Authority(pem, "authority").sign_list(key, {}, 1))
    return Site.open(site.places.folder)


def problems(site: Site) -> list[str]:
    return [text for one in listed(site) for text in one.problems]


@pytest.mark.parametrize(
    ("begins", "complaint"),
    [
        (
            -20 * DAY,
            "the site's authority has ended on .*: make a new site, and give everything anew from it",
        ),
        (20 * DAY, r"by this computer's clock it is .*, before the site's authority begins \(.*\): set the clock"),
    ],
)
def test_no_certificate_is_given_that_is_never_valid(site: Site, begins: timedelta, complaint: str) -> None:
    site = with_authority(site, datetime.now(UTC) + begins, 10)
    for wish in (Wish("attic"), Wish("shed", GATEWAY, hosts=["shed.local"])):
        with pytest.raises(SiteError, match=complaint):
            site.give_all([wish])
    assert site.lines() == {}
    site.give("display", PASSWORD)


def test_a_site_is_not_made_by_a_clock_that_was_never_set() -> None:
    with pytest.raises(SiteError, match="by this computer's clock it is 1970-01-03: set it first"):
        check_clock(datetime(1970, 1, 3, tzinfo=UTC))


def test_the_list_tells_what_ends_soon(site: Site) -> None:
    site.give_all([Wish("later"), Wish("short", days=100), Wish("soon", days=3000)])
    assert problems(site) == []
    (key, line) = next((key, line) for key, line in site.lines().items() if line.name == "soon")
    assert key
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    soon = [one.problems for one in listed(site, line.ends_ms - 80 * 86_400_000)]
    assert soon == [[], ["its certificate is out of date"], ["its certificate ends soon"]]
    assert [one.problems for one in listed(site, now_ms + 70 * 86_400_000)][1] == ["its certificate ends soon"]


def test_the_list_tells_when_the_authority_ends_soon_or_has_ended(site: Site) -> None:
    now = datetime.now(UTC)
    assert end_words(site) == f"{site.authority.ends:%Y-%m-%d}"
    assert end_words(with_authority(site, now, 1)).endswith(
        ", which is soon: make a new site, and move everything to it"
    )
    assert end_words(with_authority(site, now, 300)).endswith(" move everything to it")
    assert end_words(with_authority(site, now - 20 * DAY, 10)).endswith(", which is past")


def test_a_file_that_a_site_cannot_do_without_is_named_with_the_place_of_its_copies(site: Site) -> None:
    site.give("attic")
    places = site.places
    for path in (places.authority, places.access, places.accounts):
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(SiteError, match=f"{path}: it is not there; each gateway of the site has a copy"):
            listed(Site.open(places.folder))
        with pytest.raises(SiteError, match=f"{path}: it is not there; each gateway of the site has a copy"):
            Site.open(places.folder).give("barn")
        write_new(path, content)
    places.key.unlink()
    with pytest.raises(SiteError, match=r"authority\.key: the site key is not there; bring it back from its copy"):
        Site.open(places.folder).give("barn")
    assert [line.name for line in site.lines().values()] == ["attic"]


def test_a_device_whose_key_is_gone_has_no_files(site: Site) -> None:
    attic = site.give("attic", holder="board 1")
    assert listed(site)[0].has_files
    attic.key.unlink()
    assert not listed(site)[0].has_files
    with pytest.raises(SiteError, match="the files of 'attic' are not here"):
        site.find("attic")
    with pytest.raises(NameTaken, match="`holdfast site revoke attic` ends that"):
        site.give("attic", holder="board 1")


def test_the_folders_of_devices_and_gateways_may_be_gone(site: Site) -> None:
    shutil.rmtree(site.places.devices)
    shutil.rmtree(site.places.gateways)
    assert site.give("attic").key.stat().st_mode & 0o077 == 0
    site.give_all([Wish("shed", GATEWAY, hosts=["shed.local"])])
    assert {path.stat().st_mode & 0o777 for path in (site.places.devices, site.places.gateways)} == {0o700}


def test_a_file_that_does_not_fit_is_named(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)) as caught:
            write_new(tmp_path / "new", b"x" * 64)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(tmp_path / "new") and not (tmp_path / "new").exists()
