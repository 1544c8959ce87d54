"""PEM files of certificates, keys and revocation lists, for TLS."""

import base64
import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from host.errors import ConfigError
from host.files import read_file

PEM_BLOCK = re.compile(rb"-----BEGIN (CERTIFICATE|X509 CRL)-----\s(.*?)-----END", re.DOTALL)
UTC_FORM = "%Y-%m-%dT%H:%M:%SZ"
SOON = timedelta(days=14)
DER_INTEGER, DER_SEQUENCE, DER_UTC_TIME, DER_TIME, DER_VERSION = 0x02, 0x30, 0x17, 0x18, 0xA0


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


def load_revoked(context: ssl.SSLContext, path: str, authorities: str) -> None:
    """Loads revocation lists; certificates on them are refused. Raises ConfigError.

    If each authority in ``authorities``, and each that signed one of them, has a list, whole chains are checked
    against the lists. Otherwise only the client's own certificate is: OpenSSL refuses a chain with a missing list.
    """
    _load(context, path, "crl", "revocation lists in PEM")
    listed = {name for kind, der in _blocks(path) if kind == b"X509 CRL" for name in _names(der)}
    needed = {name for kind, der in _blocks(authorities) if kind == b"CERTIFICATE" for name in _names(der)}
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN if needed <= listed else ssl.VERIFY_CRL_CHECK_LEAF


def reason_of(error: ssl.SSLError) -> str:
    """Returns what is wrong, in OpenSSL's words if there are any."""
    return (error.reason or "it is not there, or cannot be read").replace("_", " ").lower()


class Validity(NamedTuple):
    """The time in which a certificate may be used, or a revocation list counts."""

    file: str
    begins: datetime
    ends: datetime

    def problem(self, now: datetime) -> str:
        """Returns that it is out of date, "" if it is not."""
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
    blocks = _blocks(path)
    certificates = [der for kind, der in blocks if kind == b"CERTIFICATE"]
    lists = [der for kind, der in blocks if kind == b"X509 CRL"]
    return [Validity(path, *times) for times in map(_times_in, certificates[:1] + lists) if times is not None]


def _times_in(der: bytes) -> tuple[datetime, datetime] | None:
    """Returns the validity of a certificate, or thisUpdate and nextUpdate of a list [RFC 5280, 4.1 and 5.1]."""
    parts = _parts(der)
    for group in (parts, *(list(_elements(der, *part[1:])) for part in parts if part[0] == DER_SEQUENCE)):
        times = [_time_of(tag, der[begin:end]) for tag, begin, end in group if tag in (DER_UTC_TIME, DER_TIME)]
        if times:
            return (times[0], times[1]) if len(times) > 1 else None
    return None


def _blocks(path: str) -> list[tuple[bytes, bytes]]:
    """Returns the kind of each certificate and revocation list in a PEM file, and its DER."""
    return [(kind, base64.b64decode(body)) for kind, body in PEM_BLOCK.findall(read_file(path))]


def _parts(der: bytes) -> list[tuple[int, int, int]]:
    """Returns the elements of a certificate, or a revocation list, that its issuer has signed."""
    (whole,) = _elements(der, 0, len(der))
    to_be_signed = next(_elements(der, *whole[1:]))
    return list(_elements(der, *to_be_signed[1:]))


def _names(der: bytes) -> list[bytes]:
    """Returns the names in a certificate, its issuer's and its subject's, or in a list, its issuer's [RFC 5280]."""
    parts = [part for part in _parts(der) if part[0] not in (DER_VERSION, DER_INTEGER)]  # without version and serial
    places = (1, 3) if parts[2][0] == DER_SEQUENCE else (1,)  # behind the issuer: a validity, or a time
    return [der[parts[place][1] : parts[place][2]] for place in places]


def _elements(der: bytes, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yields the tag of each element between two places, and where its content begins and ends [X.690]."""
    while begin < end:
        tag, length = der[begin], der[begin + 1]
        begin += 2
        if length & 0x80:  # the length has this many bytes
            size = length & 0x7F
            length = int.from_bytes(der[begin : begin + size], "big")
            begin += size
        yield tag, begin, begin + length
        begin += length


def _time_of(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == DER_UTC_TIME:  # two digits of the year, from 1950 to 2049 [RFC 5280, 4.1.2.5.1]
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


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
