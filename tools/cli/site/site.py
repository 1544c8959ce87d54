"""A site: what it gives to devices and gateways, and how that ends.

Each change is made of steps that can be repeated: the ledger says first what begins or ends, and last that it is done.
A command that was killed leaves a line ``begun`` or ``ending``, and the next run goes on from there.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from host.files import read_file
from tools.cli.site.authority import Authority, common_name, read_certificate
from tools.cli.site.change import Change, SiteKey, changing, now_ms
from tools.cli.site.errors import NameTaken, SiteError
from tools.cli.site.given import Given
from tools.cli.site.giving import DAYS, Wish, give_all, renew
from tools.cli.site.ledger import CERTIFICATE, ENDING, GIVEN, PASSWORD, REPLACED, Kind, Line, Lines, read_lines
from tools.cli.site.places import Places
from tools.cli.site.rules import Rights, names_in


def no_passphrase() -> bytes:
    """Has no passphrase to give. Raises SiteError."""
    raise SiteError("the site key is encrypted: expected its passphrase")


class Site:
    """An open site. `open` makes it.

    ``notes`` are sentences about what did not fit together and was put right, such as a ledger from an old backup.
    """

    def __init__(self, places: Places, authority: Authority, key: SiteKey) -> None:
        self.places = places
        self.authority = authority
        self.notes: list[str] = []
        self._key = key

    @staticmethod
    def open(folder: Path, passphrase: Callable[[], bytes] = no_passphrase) -> "Site":
        """Opens the folder of a site.

        Args:
            folder: that `make_site` has made.
            passphrase: is called once the site key is needed, if that is encrypted. It may raise HostError.

        Raises:
            HostError: it is not a site, or a file in it cannot be used.
        """
        places = Places(folder.resolve())
        if not places.is_site:
            raise SiteError(f"{folder}: not a site; `holdfast site init` makes one")
        places.check(places.authority, places.access)
        authority = Authority(read_file(places.authority), str(places.authority))
        return Site(places, authority, SiteKey(places.key, authority, passphrase))

    def give(self, name: str, kind: Kind = CERTIFICATE, *, holder: str = "", rights: Rights | None = None) -> Given:
        """Gives a device a certificate or an account, and its access rules.

        If this ``holder`` has what is under the name already, that is returned. So a program that was interrupted after
        this call can be run again.

        Raises:
            NameTaken: the name has another holder.
            HostError, OSError: it cannot be given, or written. The next call goes on with what had begun.
        """
        for line in self.lines().values():
            is_same = holder and (line.name, line.kind, line.holder, line.state) == (name, kind, holder, GIVEN)
            if is_same and self.places.has_files(line):
                return self._given(line)
        return self.give_all([Wish(name, kind, holder, rights=rights or Rights())])[0]

    def give_all(self, wishes: Sequence[Wish]) -> list[Given]:
        """Gives to each device and gateway, or to none if one of the names cannot be used.

        What an earlier call had begun under a name is completed. All is on disk when the call returns. Raises as
        `give`.
        """
        with self._changing() as change:
            return [self._given(line) for line in give_all(change, wishes)]

    def renew(self, names: Sequence[str], days: int = DAYS) -> list[Given]:
        """Gives devices a new key and certificate each; the former ones are valid until `revoke_former` ends them.

        Raises:
            HostError, OSError: one cannot be renewed. The next call goes on with what had begun.
        """
        with self._changing() as change:
            return [self._given(renew(change, name, days)) for name in dict.fromkeys(names)]

    def find(self, name: str) -> Given | None:
        """Returns what a name was given and has still; None if that is nothing.

        Raises:
            HostError: the ledger cannot be read, or the files of what was given are not here.
        """
        for line in self.lines().values():
            if line.name == name and line.state == GIVEN:
                if not self.places.has_files(line):
                    raise SiteError(f"{self.places.of(line)}: the files of {name!r} are not here")
                return self._given(line)
        return None

    def lines(self) -> Lines:
        """Returns the lines of the ledger. Raises HostError."""
        return read_lines(self.places.folder)

    def hold(self, name: str, board: str) -> None:
        """Notes the number of the board that gets what a name was given. What the ledger says of its holder stays.

        Raises:
            NameTaken: another board has it, or this board has what another name was given.
            HostError, OSError: it cannot be noted.
        """
        with self._changing() as change:
            for line in change.ledger.lines.values():
                if line.is_open and line.board == board and line.name != name:
                    raise NameTaken(
                        f"this board, {board}, has what {line.name!r} was given; "
                        f"`holdfast site revoke {line.name}` ends that"
                    )
            found = change.ledger.open_line(name)
            if found is None:
                raise SiteError(f"{name!r} has nothing of this site any more")
            key, line = found
            if line.board and line.board != board:
                raise NameTaken(
                    f"{name!r} was given to another board, {line.board}; `holdfast site revoke {name}` ends that"
                )
            if not line.board:
                holder = f"{line.holder}; board {board}" if line.holder else f"board {board}"
                change.ledger.change({key: replace(line, holder=holder)})

    def revoke(self, names: Sequence[str]) -> list[Line]:
        """Ends what names were given: at the revocation list, the accounts and the access rules. Their keys are
        deleted here. Returns the lines that have ended.

        Raises:
            SiteError: a name has nothing; then nothing ends.
            HostError, OSError: it cannot be written. The next change goes on with what had begun.
        """
        with self._changing() as change:
            found = {name: change.ledger.valid_lines(name) for name in dict.fromkeys(names)}
            rules = names_in(read_file(self.places.access).decode())
            if missing := [name for name, lines in found.items() if not lines and name not in rules]:
                raise SiteError(f"{missing[0]!r} has nothing of this site; `holdfast site list` shows what was given")
            if any(line.serial for lines in found.values() for line in lines.values()):
                change.key.load()
            for name in (name for name, lines in found.items() if not lines):
                change.notes.append(
                    f"{name} had access rules, and no line in the ledger. If it has a certificate, revoke that too: "
                    "`holdfast site revoke --certificate FILE`"
                )
                change.ledger.add([Line(name, PASSWORD, ENDING, now_ms(), ended_ms=now_ms())])
            return self._end(change, {key: line for lines in found.values() for key, line in lines.items()})

    def revoke_former(self, names: Sequence[str]) -> list[Line]:
        """Ends certificates that others have taken the place of; what the names have now stays. Raises as `revoke`."""
        with self._changing() as change:
            change.key.load()
            lines: Lines = {}
            for name in dict.fromkeys(names):
                former = {key: line for key, line in change.ledger.valid_lines(name).items() if line.state == REPLACED}
                if not former:
                    raise SiteError(f"{name!r} has no certificate that another one has taken the place of")
                lines |= former
            return self._end(change, lines)

    def revoke_certificate(self, pem: bytes, file: str) -> list[Line]:
        """Revokes a certificate of this site that the ledger may not know; ``file`` names it in an error.

        Raises:
            SiteError: it is no certificate of this site.
            HostError, OSError: it cannot be written. The next change goes on with what had begun.
        """
        certificate = read_certificate(pem, file)
        if not self.authority.has_signed(certificate):
            raise SiteError(f"{file}: a certificate that is not of this site")
        if certificate.serial_number == self.authority.serial:
            raise SiteError(f"{file}: the certificate of the authority itself; without it no device could connect")
        with self._changing() as change:
            change.key.load()
            serial = f"{certificate.serial_number:x}"
            known = {key: line for key, line in change.ledger.lines.items() if line.serial == serial}
            if not known:
                begins_ms = int(certificate.not_valid_before_utc.timestamp() * 1000)
                ends_ms = int(certificate.not_valid_after_utc.timestamp() * 1000)
                line = Line(common_name(certificate), CERTIFICATE, ENDING, begins_ms, ends_ms, now_ms(), serial)
                known = change.ledger.add([line])
            return self._end(change, known)

    def _end(self, change: Change, lines: Lines) -> list[Line]:
        """Ends lines that have not ended yet; returns them as they are then, with lines that had begun to end."""
        ended = {key: replace(one, state=ENDING, ended_ms=now_ms()) for key, one in lines.items() if one.is_valid}
        change.ledger.change(ended)
        change.finish_endings()
        return [change.ledger.lines[key] for key in lines]

    def _given(self, line: Line) -> Given:
        return Given(line.name, line, self.places.of(line), self.places.authority)

    @contextmanager
    def _changing(self) -> Iterator[Change]:
        with changing(self.places, self.authority, self._key) as change:
            try:
                yield change
            finally:
                self.notes += change.notes
