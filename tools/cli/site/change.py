"""One change of a site: its folder is locked, its ledger is open, and what did not fit together was put right."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from gateway.auth.accounts import delete_account, load_accounts
from host.files import locked, read_file, read_secret, replace_file
from tools.cli.site.authority import Authority, RevokedList, common_name, read_certificate
from tools.cli.site.errors import SiteError
from tools.cli.site.given import CERTIFICATE_FILE, PASSWORD_FILE
from tools.cli.site.keys import Key, is_encrypted, read_key
from tools.cli.site.ledger import (
    CERTIFICATE,
    ENDING,
    GATEWAY,
    GIVEN,
    PASSWORD,
    REPLACED,
    REVOKED,
    Kind,
    Line,
    SiteLedger,
)
from tools.cli.site.making import is_name
from tools.cli.site.places import PUBLIC_MODE, Places, remove_whole
from tools.cli.site.rules import own_rules, without_block
from tools.cli.utc import moment_of


def now_ms() -> int:
    """Returns the unix time now."""
    return int(time.time() * 1000)


class SiteKey:
    """The site key, which is read when something is to be signed.

    Args:
        path: its file.
        authority: whose key it has to be.
        passphrase: returns the passphrase; it is asked if the key is encrypted. Raises HostError.
    """

    def __init__(self, path: Path, authority: Authority, passphrase: Callable[[], bytes]) -> None:
        self._path = path
        self._authority = authority
        self._passphrase = passphrase
        self._key: Key | None = None

    def load(self) -> Key:
        """Returns the key. Raises HostError: it cannot be read, or is another authority's."""
        if self._key is None:
            if not self._path.exists():
                raise SiteError(f"{self._path}: the site key is not there; bring it back from its copy")
            pem = read_secret(self._path)
            key = read_key(pem, self._passphrase() if is_encrypted(pem) else None, str(self._path))
            if not self._authority.is_of(key):
                raise SiteError(f"{self._path}: it is the key of another authority")
            self._key = key
        return self._key


@dataclass
class Change:
    """What a change works with. ``notes`` are sentences about what was put right before it."""

    places: Places
    authority: Authority
    key: SiteKey
    ledger: SiteLedger
    notes: list[str] = field(default_factory=list)

    def finish_endings(self) -> None:
        """Ends all that is ``ending``: first at the revocation list, then the rest. Raises HostError, OSError."""
        self._revoke()
        ending = {key: line for key, line in self.ledger.lines.items() if line.state == ENDING}
        if not ending:
            return
        still_open = {line.name for line in self.ledger.lines.values() if line.is_open}
        for line in (line for line in ending.values() if is_name(line.name)):  # a forged certificate may name a path
            folder = self.places.of(line)
            if line.name not in still_open:
                self._take_rights(line.name)
            if line.name not in still_open or serial_in(folder) == line.serial:
                remove_whole(folder)
        self.ledger.change({key: replace(line, state=REVOKED) for key, line in ending.items()})

    def _revoke(self) -> None:
        """Brings the revocation list up to the ledger. What is on it stays, also if the ledger is older."""
        before = revoked_in(self.places, self.authority)
        ended = [line for line in self.ledger.lines.values() if line.state in (ENDING, REVOKED) and line.serial]
        listed = {int(line.serial, 16): moment_of(line.ended_ms) for line in ended}
        if listed.keys() <= before.revoked.keys() and before.number:
            return
        pem = self.authority.sign_list(self.key.load(), listed | before.revoked, before.number + 1)
        with locked(self.places.shared):
            replace_file(self.places.revoked, pem, PUBLIC_MODE)

    def _take_rights(self, name: str) -> None:
        if self.places.accounts.exists() and name in load_accounts(self.places.accounts):
            delete_account(self.places.accounts, name)
        with locked(self.places.shared):
            text = read_file(self.places.access).decode()
            if (without := without_block(text, name, self.places.access)) != text:
                replace_file(self.places.access, without.encode(), PUBLIC_MODE)
        for number, rule in own_rules(without, name):
            self.notes.append(
                f"{self.places.access}:{number}: a rule of your own for {name} stays: {rule!r}. Delete it, unless "
                f"{name} is to have it when it is given anew"
            )

    def put_right(self) -> None:
        """Brings the ledger up to what is in the folder: it may be from a backup that is older than what was given
        or revoked. Raises HostError.
        """
        for folder in self.places.made():
            if (folder / CERTIFICATE_FILE).exists():
                self._adopt_certificate(folder)
            elif (folder / PASSWORD_FILE).exists():
                self._adopt_account(folder)
        listed = revoked_in(self.places, self.authority).revoked
        ended = {
            key: replace(line, state=ENDING, ended_ms=int(listed[int(line.serial, 16)].timestamp() * 1000))
            for key, line in self.ledger.lines.items()
            if line.is_valid and line.serial and int(line.serial, 16) in listed
        }
        if ended:
            self.ledger.change(ended)
            names = ", ".join(line.name for line in ended.values())
            self.notes.append(f"the revocation list has the certificate of {names}, and the ledger did not know it")
        self.finish_endings()

    def _adopt_certificate(self, folder: Path) -> None:
        serial = serial_in(folder)
        lines = self.ledger.lines
        if any(line.name == folder.name and line.serial == serial for line in lines.values()):
            return
        certificate = read_certificate(read_file(folder / CERTIFICATE_FILE), str(folder / CERTIFICATE_FILE))
        if not self.authority.has_signed(certificate) or common_name(certificate) != folder.name:
            self.notes.append(f"{folder}: a certificate that is not of this site, or not of this name; move it away")
            return
        older = self.ledger.open_line(folder.name)
        if older is not None and older[1].serial:  # it was renewed, or revoked: then the revocation list says so
            self.ledger.change({older[0]: replace(older[1], state=REPLACED)})
        elif older is not None:
            self.ledger.change({older[0]: replace(older[1], state=ENDING, ended_ms=now_ms())})
        kind: Kind = GATEWAY if folder.parent == self.places.gateways else CERTIFICATE
        made_ms = int((folder / CERTIFICATE_FILE).stat().st_mtime * 1000)
        ends_ms = int(certificate.not_valid_after_utc.timestamp() * 1000)
        self._adopt(Line(folder.name, kind, GIVEN, made_ms, ends_ms, serial=serial))

    def _adopt_account(self, folder: Path) -> None:
        if any(line.name == folder.name and line.is_current for line in self.ledger.lines.values()):
            return
        if folder.name in load_accounts(self.places.accounts):
            made_ms = int((folder / PASSWORD_FILE).stat().st_mtime * 1000)
            self._adopt(Line(folder.name, PASSWORD, GIVEN, made_ms))
        else:
            self.notes.append(f"{folder}: a password without an account, and without a line in the ledger")

    def _adopt(self, line: Line) -> None:
        self.ledger.add([line])
        self.notes.append(f"the ledger had no line of {line.name}, and has one now; is the ledger from an old backup?")


@contextmanager
def changing(places: Places, authority: Authority, key: SiteKey) -> Iterator[Change]:
    """Locks a site's folder, opens its ledger and puts right what does not fit together. Raises HostError, OSError."""
    with locked(places.folder):
        ledger = SiteLedger(places.folder)
        try:
            change = Change(places, authority, key, ledger)
            change.put_right()
            yield change
        finally:
            ledger.close()


def revoked_in(places: Places, authority: Authority) -> RevokedList:
    """Returns what is on a site's revocation list; nothing if the file is gone. Raises HostError."""
    if not places.revoked.exists():
        return RevokedList(0, {})
    return authority.read_list(read_file(places.revoked), str(places.revoked))


def serial_in(folder: Path) -> str:
    """Returns the serial number of the certificate in a folder as the ledger has it, "" without one."""
    path = folder / CERTIFICATE_FILE
    return f"{read_certificate(read_file(path), str(path)).serial_number:x}" if path.exists() else ""
