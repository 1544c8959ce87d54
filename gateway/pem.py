"""PEM files of certificates, keys and revocation lists, for TLS."""

import ssl

from gateway.config_file import read_file
from gateway.errors import ConfigError


def load_own(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Reads the certificate to show, with those between it and the root, and its key. Raises ConfigError."""
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


def load_authorities(context: ssl.SSLContext, path: str) -> None:
    """Reads the certificates of authorities that are trusted. Raises ConfigError."""
    _load(context, path, "x509_ca", "certificates of authorities in PEM")


def load_revoked(context: ssl.SSLContext, path: str) -> None:
    """Reads what these have revoked; a certificate on it is refused. Raises ConfigError."""
    _load(context, path, "crl", "revocation lists in PEM")
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def reason_of(error: ssl.SSLError) -> str:
    """What is wrong, in OpenSSL's words."""
    return (error.reason or str(error)).replace("_", " ").lower()


def _load(context: ssl.SSLContext, path: str, kind: str, expected: str) -> None:
    read_file(path)
    before = context.cert_store_stats()[kind]
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"{path}: expected {expected}: {reason_of(error)}") from error
    if context.cert_store_stats()[kind] == before:
        raise ConfigError(f"{path}: expected {expected}")


def _refuse_encrypted() -> str:
    raise ValueError("the key is encrypted; nobody is there to ask for its password when a gateway starts")
