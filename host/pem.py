"""PEM files of certificates, keys and revocation lists, for TLS."""

import ssl
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from host.der import Certificate, RevocationList, certificates_in, lists_in
from host.errors import ConfigError
from host.files import read_file

UTC_FORM = "%Y-%m-%dT%H:%M:%SZ"
SOON = timedelta(days=14)


def load_own(context: ssl.SSLContext, certificate: str | Path, key: str | Path) -> None:
    """Loads a program's own certificate with the intermediate ones, and its key. Raises ConfigError."""
    for path in (certificate, key):
        read_file(path)
    try:
        context.load_cert_chain(certificate, key, password=_refuse_encrypted)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{certificate}: expected a certificate in PEM whose key is in {key}: {reason_of(error)}"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from error


def load_authorities(context: ssl.SSLContext, path: str | Path) -> None:
    """Loads the certificates of the authorities that are trusted. Raises ConfigError."""
    _load(context, path, "x509_ca", "certificates of authorities in PEM")


def load_revoked(context: ssl.SSLContext, path: str, authorities: str) -> list[RevocationList]:
    """Loads revocation lists; certificates on them are refused. Returns these lists.

    If each authority in ``authorities``, and each that signed one of them, has a list, whole chains are checked
    against the lists. Otherwise only the client's own certificate is: OpenSSL refuses a chain with a missing list.

    Raises:
        ConfigError: the file cannot be read, or has the list of none of the authorities: OpenSSL would take it, and
            refuse every client.
    """
    _load(context, path, "crl", "revocation lists in PEM")
    try:
        lists, known = lists_in(read_file(path)), certificates_in(read_file(authorities))
    except (ValueError, IndexError) as error:
        raise ConfigError(f"{path}: expected revocation lists of the authorities in {authorities}, in DER") from error
    _check_signers(path, lists, authorities, known)
    listed = {one.issuer for one in lists}
    needed = {name for one in known for name in (one.issuer, one.subject)}
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN if needed <= listed else ssl.VERIFY_CRL_CHECK_LEAF
    return lists


def _check_signers(path: str, lists: list[RevocationList], authorities: str, known: list[Certificate]) -> None:
    """Raises ConfigError if no list is of a known authority, or one is signed with another key than its authority's."""
    keys: dict[bytes, set[bytes]] = {}
    for authority in known:
        keys.setdefault(authority.subject, set()).add(authority.key_id)
    ours = [one for one in lists if one.issuer in keys]
    if not ours:
        raise ConfigError(f"{path}: expected the revocation list of an authority in {authorities}, and it is another's")
    for one in ours:
        if one.key_id and b"" not in keys[one.issuer] and one.key_id not in keys[one.issuer]:
            raise ConfigError(
                f"{path}: a revocation list of an authority in {authorities}, which another key than its own has signed"
            )


def reason_of(error: ssl.SSLError) -> str:
    """Returns what is wrong, in OpenSSL's words if there are any."""
    return (error.reason or "it is not there, or cannot be read").replace("_", " ").lower()


class Validity(NamedTuple):
    """The time in which a certificate may be used, or a revocation list counts."""

    file: str
    begins: datetime
    ends: datetime

    def problem(self, now: datetime) -> str:
        """Returns that it is out of date, or not valid yet, "" if it is valid."""
        if now < self.begins:
            return (
                f"{self.file}: not valid before {self.begins:{UTC_FORM}}, and it is {now:{UTC_FORM}} by this machine's "
                "clock"
            )
        return f"{self.file}: out of date since {self.ends:{UTC_FORM}}" if self.ends < now else ""

    def note(self, now: datetime) -> str:
        """Returns that it is out of date soon, "" if it is not: in two weeks, or in the last third of a short life."""
        soon = min(SOON, (self.ends - self.begins) / 3)
        is_soon = now <= self.ends < now + soon
        return f"{self.file}: out of date from {self.ends:{UTC_FORM}} on" if is_soon else ""


def validities(path: str) -> list[Validity]:
    """Returns the validity of the first certificate in a PEM file, and of its revocation lists.

    OpenSSL has read the file without an error. Raises ConfigError.
    """
    pem = read_file(path)
    try:
        certificates = [Validity(path, one.begins, one.ends) for one in certificates_in(pem)[:1]]
        return certificates + validities_of(path, lists_in(pem))
    except (ValueError, IndexError):  # OpenSSL reads more forms than DER
        return []


def validities_of(path: str, lists: Sequence[RevocationList]) -> list[Validity]:
    """Returns the validity of the lists of a file that announce their end."""
    return [Validity(path, one.begins, one.ends) for one in lists if one.ends is not None]


def _load(context: ssl.SSLContext, path: str | Path, kind: str, expected: str) -> None:
    read_file(path)
    before = context.cert_store_stats()[kind]
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"{path}: expected {expected}: {reason_of(error)}") from error
    if context.cert_store_stats()[kind] == before:
        raise ConfigError(f"{path}: expected {expected}")


def _refuse_encrypted() -> str:
    raise ValueError("the key is encrypted; the program cannot ask for its password when it starts")
