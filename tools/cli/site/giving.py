"""Giving: certificates with their keys, accounts, and access rules."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from msgspec.structs import replace

from gateway.auth.accounts import load_accounts, make_account, save_account
from gateway.auth.scram import ITERATIONS_MIN
from host.files import locked, read_file, read_password, replace_file
from tools.cli.site.authority import is_host, new_serial
from tools.cli.site.change import Change, now_ms, serial_in
from tools.cli.site.errors import NameTaken, SiteError
from tools.cli.site.given import CERTIFICATE_FILE, KEY_FILE, PASSWORD_FILE
from tools.cli.site.keys import key_pem, new_key
from tools.cli.site.ledger import BEGUN, CERTIFICATE, GATEWAY, GIVEN, PASSWORD, REPLACED, Kind, Line, Lines
from tools.cli.site.making import check_name
from tools.cli.site.places import PUBLIC_MODE, make_whole, remove_whole
from tools.cli.site.rules import Rights, block_of, names_in, with_blocks
from tools.cli.utc import moment_of

DAYS = 3650
PASSWORD_BYTES = 24  # of random, which make 32 characters


@dataclass(frozen=True)
class Wish:
    """What one device or gateway is to get.

    ``holder`` says what gets it, such as a board's number. ``days`` is how long a certificate is valid. ``rights`` are
    those of a device, and ``hosts`` the host names and addresses of a gateway.
    """

    name: str
    kind: Kind = CERTIFICATE
    holder: str = ""
    days: int = DAYS
    rights: Rights = field(default_factory=Rights)
    hosts: Sequence[str] = ()


def give_all(change: Change, wishes: Sequence[Wish]) -> list[Line]:
    """Gives to each device and gateway, or to none if one of the names cannot be used; returns their lines.

    A step that was done before is not done again: neither is a key made twice, nor a serial number used twice.

    Raises:
        NameTaken, HostError, OSError: the next call goes on with what had begun.
    """
    _check(change, wishes)
    if any(wish.kind != PASSWORD for wish in wishes):
        change.key.load()
    lines = _begin(change, wishes)
    for wish, line in zip(wishes, lines.values(), strict=True):
        folder = change.places.of(line)
        if not folder.exists():
            make_whole(folder, _password() if line.kind == PASSWORD else _certificate(change, wish, line))
    _allow(change, [wish for wish in wishes if wish.kind != GATEWAY])
    for wish in (wish for wish in wishes if wish.kind == PASSWORD):
        password = read_password(change.places.devices / wish.name / PASSWORD_FILE)
        account = make_account(wish.name, password, with_scram=True, iterations=ITERATIONS_MIN)
        save_account(change.places.accounts, account)
    done = {key: replace(line, state=GIVEN) for key, line in lines.items()}
    change.ledger.change(done)
    return list(done.values())


def renew(change: Change, name: str, days: int) -> Line:
    """Gives a device a new key and certificate in place of those it has, which stay valid until they are revoked.

    Its access rules stay. Raises HostError, OSError: the next call goes on with what had begun.
    """
    change.authority.check_clock(datetime.now(UTC))
    change.key.load()
    lines = {key: line for key, line in change.ledger.valid_lines(name).items() if line.kind == CERTIFICATE}
    given = {key: line for key, line in lines.items() if line.state == GIVEN}
    if not given:
        raise SiteError(f"{name!r} has no certificate of this site to renew; `holdfast site list` shows what was given")
    begun = {key: line for key, line in lines.items() if line.state == BEGUN} or change.ledger.add(
        [_new_line(change, Wish(name, holder=next(reversed(given.values())).holder, days=days))]
    )
    ((key, line),) = begun.items()
    folder = change.places.of(line)
    if serial_in(folder) != line.serial:
        remove_whole(folder)
        make_whole(folder, _certificate(change, Wish(name), line))
    done = replace(line, state=GIVEN)
    change.ledger.change({key: done} | {old: replace(one, state=REPLACED) for old, one in given.items()})
    return done


def _check(change: Change, wishes: Sequence[Wish]) -> None:
    """Raises SiteError for the first name that cannot be given, and if there is a time for no certificate."""
    rules = names_in(read_file(change.places.access).decode())
    change.places.check(change.places.accounts)
    accounts = load_accounts(change.places.accounts)
    if any(wish.kind != PASSWORD for wish in wishes):
        change.authority.check_clock(datetime.now(UTC))
    names: set[str] = set()
    for wish in wishes:
        check_name(wish.name)
        if wish.name in names:
            raise SiteError(f"{wish.name!r} is named twice")
        names.add(wish.name)
        if wish.kind == GATEWAY and (not wish.hosts or not all(map(is_host, wish.hosts))):
            raise SiteError(f"{wish.name!r}: expected a host name or an address by which devices reach it")
        if (found := change.ledger.open_line(wish.name)) is not None:
            _check_again(wish, found[1])
        elif any((group / wish.name).exists() for group in (change.places.devices, change.places.gateways)):
            raise NameTaken(f"{wish.name!r} has a folder that the ledger does not know; move it away")
        elif wish.name in rules:
            raise NameTaken(
                f"{wish.name!r} has access rules, and no line in the ledger: is the ledger from an old backup? "
                f"`holdfast site revoke {wish.name}` ends what it has"
            )
        elif wish.name in accounts:
            raise NameTaken(f"{wish.name!r} has an account that this site has not made")


def _check_again(wish: Wish, line: Line) -> None:
    """Raises SiteError unless a line is only begun, and for the same."""
    if line.state == GIVEN:
        raise NameTaken(
            f"{wish.name!r} was given on {moment_of(line.given_ms):%Y-%m-%d}"
            f"{f' to {line.holder}' if line.holder else ''}; `holdfast site revoke {wish.name}` ends that"
        )
    if line.kind != wish.kind:
        raise SiteError(f"{wish.name!r} was begun as a {line.kind}: give that, or revoke it first")


def _begin(change: Change, wishes: Sequence[Wish]) -> Lines:
    """Returns the line of each wish, with its key in the ledger; it says ``begun`` there."""
    change.ledger.add([_new_line(change, wish) for wish in wishes if change.ledger.open_line(wish.name) is None])
    found = [change.ledger.open_line(wish.name) for wish in wishes]
    return dict(one for one in found if one is not None)


def _new_line(change: Change, wish: Wish) -> Line:
    is_dated = wish.kind != PASSWORD
    ends = change.authority.end_of(wish.days, datetime.now(UTC))
    ends_ms = int(ends.timestamp() * 1000) if is_dated else 0
    serial = f"{new_serial():x}" if is_dated else ""
    return Line(wish.name, wish.kind, BEGUN, now_ms(), ends_ms, serial=serial, holder=wish.holder)


def _password() -> dict[str, bytes]:
    return {PASSWORD_FILE: secrets.token_urlsafe(PASSWORD_BYTES).encode() + b"\n"}


def _certificate(change: Change, wish: Wish, line: Line) -> dict[str, bytes]:
    own, site_key, authority = new_key(), change.key.load(), change.authority
    serial, ends, public_key = int(line.serial, 16), moment_of(line.ends_ms), own.public_key()
    if line.kind == GATEWAY:
        pem = authority.sign_gateway(site_key, line.name, wish.hosts, public_key, serial, ends)
    else:
        pem = authority.sign_device(site_key, line.name, public_key, serial, ends)
    return {KEY_FILE: key_pem(own), CERTIFICATE_FILE: pem}


def _allow(change: Change, wishes: Sequence[Wish]) -> None:
    """Writes the access rules of devices."""
    if not wishes:
        return
    path = change.places.access
    with locked(change.places.shared):
        blocks = [block_of(wish.name, wish.rights) for wish in wishes]
        replace_file(path, with_blocks(read_file(path).decode(), blocks, path).encode(), PUBLIC_MODE)
