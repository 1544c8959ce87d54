"""The versions and cipher suites of TLS that our servers and clients speak, whatever the defaults of OpenSSL.

The suites of TLS 1.3 are OpenSSL's: Python can choose among them from 3.15 on.
"""

import re
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from host.pem import load_authorities, load_own

Version = Literal["1.0", "1.1", "1.2", "1.3"]

VERSIONS = {
    "1.0": ssl.TLSVersion.TLSv1,
    "1.1": ssl.TLSVersion.TLSv1_1,
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
OLD = ("1.0", "1.1")
SUITES = (
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
)
"""Suites of TLS 1.2 with forward secrecy and authenticated encryption [RFC 9325 section 4.2]."""

OLD_SUITES = (
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES256-SHA",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-RSA-AES128-SHA",
    "AES256-SHA",
    "AES128-SHA",
)
"""Suites that TLS 1.0 and 1.1 have."""

LEVEL = "@SECLEVEL=2"  # keys of RSA from 2,048 bits on, and no signature by SHA-1
OLD_LEVEL = "@SECLEVEL=0"  # OpenSSL 3 refuses TLS 1.0 and 1.1 above it
NEVER = "!aNULL:!eNULL"  # without a certificate of the server, or without encryption
SEPARATORS = re.compile("[:;, ]+")


def choose(context: ssl.SSLContext, minimum: Version = "1.2", ciphers: str | None = None) -> None:
    """Sets the versions and suites of a context.

    Args:
        context: of a server or a client.
        minimum: the lowest version.
        ciphers: the suites before TLS 1.3, as OpenSSL writes them (openssl-ciphers(1)); None for ours.

    Raises:
        ssl.SSLError: OpenSSL cannot use ``ciphers``; ``errors_in`` says why.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python's, about the old versions
        context.minimum_version = VERSIONS[minimum]
    if ciphers is None:
        ciphers = ":".join((*SUITES, *OLD_SUITES, OLD_LEVEL) if minimum in OLD else SUITES)
    context.set_ciphers(f"{LEVEL}:{ciphers}:{NEVER}")


def make_client_context(
    ca: str | Path | None,
    certificate: str | Path | None,
    key: str | Path | None,
    *,
    minimum: Version = "1.2",
    ciphers: str | None = None,
) -> ssl.SSLContext:
    """Returns a context for which the server's certificate has to be for its host name.

    Args:
        ca: the certificates of the authorities by which the server is known, in PEM; None: those of the system.
        certificate, key: the client's own certificate with the intermediate ones, and its key, in PEM; None without.
        minimum, ciphers: as for ``choose``.

    Raises:
        ConfigError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    choose(context, minimum, ciphers)
    if ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        load_authorities(context, ca)
    if certificate is not None and key is not None:
        load_own(context, certificate, key)
    return context


def errors_in(minimum: Version, ciphers: str | None) -> Iterator[str]:
    """Yields what is wrong with the suites of a configuration; OpenSSL itself passes over each name unknown to it."""
    if ciphers is None:
        return
    unknown = [part for part in SEPARATORS.split(ciphers) if part and not _is_known(part)]
    for part in unknown:
        if part.startswith("TLS_"):
            yield f"{part!r}: the suites of TLS 1.3 cannot be chosen, expected suites of TLS 1.2"
        else:
            yield f"{part!r}: OpenSSL knows no such cipher suite or rule; `openssl ciphers` lists the suites"
    if unknown:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        choose(context, minimum, ciphers)
    except ssl.SSLError:
        yield f"{ciphers!r}: no cipher suite with a certificate and encryption is left"
        return
    if minimum in OLD and context.security_level:
        yield f"{ciphers!r}: expected {OLD_LEVEL} in it, without which OpenSSL has no TLS {minimum}"


def _is_known(part: str) -> bool:
    """Whether OpenSSL knows a part of a cipher list. What a part takes away need not be there any more."""
    if not part.isascii() or not part.isprintable():
        return False
    if part.startswith(("!", "-")):
        return True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.set_ciphers(f"ALL:{part}" if part.startswith("@") else f"{part.removeprefix('+')}:{OLD_LEVEL}")
    except ssl.SSLError:
        return False
    return True
