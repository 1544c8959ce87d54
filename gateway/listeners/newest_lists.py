"""The newest revocation list of each authority that a gateway has used, kept beside its store over restarts.

Without it a start would take a list that is older than the one before, as the files of an old backup are, and would
let in again the clients that the newer one keeps out.
"""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gateway.log_fields import about
from host.der import RevocationList
from host.errors import ConfigError
from host.files import read_file, replace_file

FILE = "revocation-lists.json"

logger = logging.getLogger(__name__)


class Used(msgspec.Struct, frozen=True):
    """A list's number, and the SHA-256 of what it revokes, by which two lists of one number are told apart."""

    number: int
    digest: str


class NewestLists:
    """What is known of the lists, by the issuer's name in hexadecimal digits.

    Args:
        folder: the store's.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / FILE

    def check(self, path: str, lists: Sequence[RevocationList]) -> None:
        """Raises ConfigError if a list is older than one that was used, or another one of the same number.

        Args:
            path: the file of the lists, for the error.
            lists: what is in it.
        """
        used = self._used()
        for issuer, one in _numbered(lists).items():
            before = used.get(issuer)
            if before is None or one.number > before.number or one == before:
                continue
            which = "another list of the same number" if one.number == before.number else "an older list"
            raise ConfigError(
                f"{path}: a revocation list of the number {one.number}, and this gateway has used one of the number "
                f"{before.number}: {which} would let in clients that were revoked. Are the authority's files from an "
                "old backup? Bring the newest list from another gateway, or revoke again what was revoked since, until "
                f"the number is above {before.number}. To take this one all the same, delete {self.file}"
            )

    def note(self, lists: Sequence[RevocationList]) -> None:
        """Keeps which lists are in use now. What cannot be written is logged."""
        try:
            used = self._used()
            if (now := used | _numbered(lists)) != used:
                replace_file(self.file, msgspec.json.encode(now))
        except (ConfigError, OSError) as error:
            logger.warning("which revocation list is the newest was not kept", extra=about(reason=str(error)))

    def _used(self) -> dict[str, Used]:
        try:
            if not self.file.is_file():
                return {}
            return msgspec.json.decode(read_file(self.file), type=dict[str, Used])
        except PermissionError:
            return {}  # another user than the gateway's looks at the configuration
        except msgspec.DecodeError as error:
            raise ConfigError(f"{self.file}: damaged: {error}; delete it to take the lists as they are") from error


def _numbered(lists: Sequence[RevocationList]) -> dict[str, Used]:
    """Returns the lists of issuers that have one, with a number: several may be for a part of its certificates each.

    RFC 5280, section 5.2.5.
    """
    issuers = [one.issuer for one in lists]
    return {
        one.issuer.hex(): Used(one.number, _digest(one.serials))
        for one in lists
        if one.number is not None and issuers.count(one.issuer) == 1
    }


def _digest(serials: frozenset[int]) -> str:
    return hashlib.sha256("\n".join(f"{serial:x}" for serial in sorted(serials)).encode()).hexdigest()
