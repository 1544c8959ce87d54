"""Certificates and revocation lists as they are written: DER, in the blocks of a PEM file.

OpenSSL has read a file without an error before it is looked into here, so its structure is not checked again.
"""

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

PEM_BLOCK = re.compile(rb"-----BEGIN (CERTIFICATE|X509 CRL)-----\s(.*?)-----END", re.DOTALL)
INTEGER, SEQUENCE = 0x02, 0x30
UTC_TIME, TIME = 0x17, 0x18
VERSION, CERTIFICATE_EXTENSIONS, LIST_EXTENSIONS, SIGNER_KEY = 0xA0, 0xA3, 0xA0, 0x80
KEY_IDENTIFIER, AUTHORITY_KEY_IDENTIFIER = b"\x55\x1d\x0e", b"\x55\x1d\x23"  # 2.5.29.14 and 2.5.29.35
LIST_NUMBER = b"\x55\x1d\x14"  # 2.5.29.20

Element = tuple[int, int, int]
"""A tag, and where the content begins and ends."""


class Certificate(NamedTuple):
    """What is read of a certificate [RFC 5280, 4.1]: names and serial number in DER, and its key's identifier.

    ``key_id`` is b"" if the certificate does not name it.
    """

    issuer: bytes
    subject: bytes
    serial: int
    key_id: bytes
    begins: datetime
    ends: datetime


class RevocationList(NamedTuple):
    """What is read of a revocation list [RFC 5280, 5.1]: its issuer's name in DER, and the revoked serial numbers.

    ``key_id`` is that of the key that signed it, b"" if the list does not name it. ``ends`` is None if no next list is
    announced; then it counts for ever. ``number`` goes up from each list of an issuer to the next; None without one.
    """

    issuer: bytes
    key_id: bytes
    serials: frozenset[int]
    begins: datetime
    ends: datetime | None
    number: int | None = None


def certificates_in(pem: bytes) -> list[Certificate]:
    """Returns the certificates in a PEM file. Raises ValueError, IndexError: their DER cannot be read."""
    return [certificate_of(der) for kind, der in _blocks(pem) if kind == b"CERTIFICATE"]


def lists_in(pem: bytes) -> list[RevocationList]:
    """Returns the revocation lists in a PEM file. Raises ValueError, IndexError: their DER cannot be read."""
    return [_list_of(der) for kind, der in _blocks(pem) if kind == b"X509 CRL"]


def certificate_of(der: bytes) -> Certificate:
    """Returns what is read of a certificate. Raises ValueError, IndexError: its DER cannot be read."""
    parts = _signed(der)
    if parts[0][0] == VERSION:
        parts = parts[1:]
    serial, _, issuer, validity, subject, _, *more = parts
    begins, ends = (_time_of(tag, der[begin:end]) for tag, begin, end in _within(der, validity))
    found = _extension(der, more, CERTIFICATE_EXTENSIONS, KEY_IDENTIFIER)
    key_id = b"" if found is None else _content(der, found)
    return Certificate(_content(der, issuer), _content(der, subject), _number(der, serial), key_id, begins, ends)


def _list_of(der: bytes) -> RevocationList:
    parts = _signed(der)
    if parts[0][0] == INTEGER:  # its version
        parts = parts[1:]
    _, issuer, *more = parts
    times = [_time_of(tag, der[begin:end]) for tag, begin, end in more[:2] if tag in (UTC_TIME, TIME)]
    revoked = [part for part in more if part[0] == SEQUENCE]
    serials = frozenset(_number(der, _within(der, one)[0]) for part in revoked for one in _within(der, part))
    found = _extension(der, more, LIST_EXTENSIONS, AUTHORITY_KEY_IDENTIFIER)
    signers = [] if found is None else [part for part in _within(der, found) if part[0] == SIGNER_KEY]
    key_id = _content(der, signers[0]) if signers else b""
    numbered = _extension(der, more, LIST_EXTENSIONS, LIST_NUMBER)
    number = None if numbered is None else _number(der, numbered)
    return RevocationList(_content(der, issuer), key_id, serials, times[0], times[1] if times[1:] else None, number)


def _blocks(pem: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the kind of each certificate and revocation list in a PEM file, and its DER."""
    for kind, body in PEM_BLOCK.findall(pem):
        yield kind, base64.b64decode(body)


def _signed(der: bytes) -> list[Element]:
    """Returns the elements of a certificate, or a revocation list, that its issuer has signed."""
    (whole,) = _elements(der, 0, len(der))
    return _within(der, _within(der, whole)[0])


def _extension(der: bytes, parts: list[Element], tag: int, name: bytes) -> Element | None:
    """Returns the value of an extension, None without it."""
    for part in (part for part in parts if part[0] == tag):
        (extensions,) = _within(der, part)
        for extension in _within(der, extensions):
            named, *_, value = _within(der, extension)  # between them: whether it is critical
            if _content(der, named) == name:
                return _within(der, value)[0]
    return None


def _within(der: bytes, element: Element) -> list[Element]:
    return list(_elements(der, *element[1:]))


def _elements(der: bytes, begin: int, end: int) -> Iterator[Element]:
    """Yields the elements between two places [X.690]. Raises ValueError: one has no end, or ends behind the last."""
    while begin < end:
        tag, length = der[begin], der[begin + 1]
        begin += 2
        if length & 0x80:  # the length has this many bytes
            size = length & 0x7F
            length = int.from_bytes(der[begin : begin + size], "big")
            begin += size
        if begin + length > end:
            raise ValueError("an element ends behind the one that holds it")
        yield tag, begin, begin + length
        begin += length


def _content(der: bytes, element: Element) -> bytes:
    return der[element[1] : element[2]]


def _number(der: bytes, element: Element) -> int:
    return int.from_bytes(_content(der, element), "big", signed=True)


def _time_of(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == UTC_TIME:  # two digits of the year, from 1950 to 2049 [RFC 5280, 4.1.2.5.1]
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
