"""The keys of a route's TLS."""

from collections.abc import Iterator
from typing import Any

from gateway.routes import Checked, NonEmpty
from host.tls import Version
from host.tls import errors_in as errors_in_suites

TLS_FILES = ("ca", "certificate", "key")
ALPN_SIZE_MAX = 255  # [RFC 7301 section 3.1]


class RouteTlsConfig(Checked, forbid_unknown_fields=True, frozen=True):
    """How a route to `mqtts://` or `wss://` uses TLS. The files are read again for each connection."""

    ca: NonEmpty | None = None
    """A PEM file with the certificates of the authorities that may sign the broker's certificate. Without it the
    system's authorities are trusted. The broker's certificate must be for the name or address in `broker`."""

    certificate: NonEmpty | None = None
    """A PEM file with the certificate that the route shows, and the certificates between it and the root."""

    key: NonEmpty | None = None
    """The certificate's private key, not encrypted: a PEM file."""

    alpn: NonEmpty | None = None
    """The name of the application protocol that the route asks for by ALPN, if the server serves several protocols at
    one port: at AWS IoT `x-amzn-mqtt-ca` on port 443."""

    minimum_version: Version = "1.2"
    """The lowest version of TLS. `"1.0"` and `"1.1"` let old brokers in: they add cipher suites without forward
    secrecy, and lower OpenSSL's security level to 0, so that also short keys and SHA-1 in certificates are
    accepted."""

    ciphers: NonEmpty | None = None
    """The cipher suites before TLS 1.3, as OpenSSL writes them, such as `"ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA"`.
    Without it these are ECDHE with AES-GCM or ChaCha20-Poly1305. The security level is 2 if there is no `@SECLEVEL=`
    in it; versions before 1.2 need `@SECLEVEL=0`. Suites without a certificate or encryption are never used. The three
    suites of TLS 1.3 are always there."""

    @classmethod
    def errors_in(cls, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from (
            ("ciphers", what) for what in errors_in_suites(values.get("minimum_version", "1.2"), values.get("ciphers"))
        )
        if values.get("alpn") and not (values["alpn"].isascii() and len(values["alpn"]) <= ALPN_SIZE_MAX):
            yield "alpn", f"expected at most {ALPN_SIZE_MAX} ASCII characters"
        if {"certificate", "key"} <= values.keys() and (values["certificate"] is None) != (values["key"] is None):
            yield "key", "certificate and key go together"
