"""Looking at a site without changing it: what was given, and what does not fit together."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from gateway.auth.accounts import load_accounts
from host.files import read_file
from tools.cli.site.change import now_ms, revoked_in
from tools.cli.site.ledger import BEGUN, ENDING, GATEWAY, GIVEN, PASSWORD, REPLACED, REVOKED, Line
from tools.cli.site.rules import names_in
from tools.cli.site.site import Site

SOON_MS = 90 * 86_400_000  # before a certificate ends, or a third of its time: a cable has to be brought to the board
AUTHORITY_SOON = timedelta(days=365)
NOT_FINISHED = "not finished: run the same command again"


class Listed(NamedTuple):
    """A line of the ledger, and sentences about what does not fit it; ``has_files`` says whether its folder is here."""

    line: Line
    has_files: bool
    problems: list[str]


def listed(site: Site, time_ms: int | None = None) -> list[Listed]:
    """Returns all that was given, in the order of giving, as it is at a unix time, by default now. Raises HostError."""
    places = site.places
    places.check(places.accounts)
    time_ms = now_ms() if time_ms is None else time_ms
    accounts = load_accounts(places.accounts)
    rules = names_in(read_file(places.access).decode())
    revoked = revoked_in(places, site.authority).revoked

    def problems(line: Line) -> Iterator[str]:
        if line.state in (BEGUN, ENDING):
            yield NOT_FINISHED
        is_listed = bool(line.serial) and int(line.serial, 16) in revoked
        if line.state == REVOKED and line.serial and not is_listed:
            yield "its certificate is not on the revocation list: the next change brings it there"
        if line.state == REPLACED:
            yield f"replaced: `holdfast site revoke {line.name} --former` once the device has the new one"
        if line.state != GIVEN:
            return
        if is_listed:
            yield "its certificate is on the revocation list: the ledger is older"
        if 0 < line.ends_ms < time_ms:
            yield "its certificate is out of date"
        elif 0 < line.ends_ms < time_ms + min(SOON_MS, (line.ends_ms - line.given_ms) // 3):
            yield "its certificate ends soon"
        if line.kind == PASSWORD and line.name not in accounts:
            yield "it has no account"
        if line.kind != GATEWAY and line.name not in rules:
            yield "it has no access rules"

    return [
        Listed(line, line.is_open and places.has_files(line), list(problems(line))) for line in site.lines().values()
    ]


def strays(site: Site) -> Iterator[str]:
    """Yields a sentence for each folder and block of access rules of which the ledger does not know."""
    known = {line.name for line in site.lines().values() if line.is_current}
    old = "is the ledger from an old backup?"
    for folder in site.places.made():
        if folder.name not in known:
            yield f"{folder}: not in the ledger; {old}"
    for name in names_in(read_file(site.places.access).decode()):
        if name not in known:
            yield f"{site.places.access}: the rules of {name} are not in the ledger; {old}"


def end_words(site: Site) -> str:
    """Returns when the site's authority ends."""
    left = site.authority.ends - datetime.now(UTC)
    more = ", which is soon: make a new site, and move everything to it" if left < AUTHORITY_SOON else ""
    return f"{site.authority.ends:%Y-%m-%d}" + (more if left > timedelta(0) else ", which is past")
