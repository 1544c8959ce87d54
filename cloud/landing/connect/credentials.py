"""How a lander logs in to the broker, and by what it knows that broker.

Each connection reads the files again, so that they can be renewed.
"""

import os
import ssl
import stat
from codecs import BOM_UTF8
from dataclasses import dataclass
from pathlib import Path

from cloud.landing.connect.server import Server
from wire.bulk.tls import choose

PASSWORD_BYTES_MAX = 65_535  # [section 3.1.3.6]
TOO_OPEN = stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


class CredentialsError(ValueError):
    """A file with a password or a certificate cannot be used; the text says why, and never what is in it."""


@dataclass(frozen=True)
class Credentials:
    """A login and files for TLS, each None where there is none.

    Args:
        user: the user name.
        password_file: a file with the password on one line, which other users can neither read nor change.
        ca: the certificates of the authorities by which the broker is known, in PEM; None: those of the system.
        certificate, key: the lander's own certificate with the intermediate ones, and its key, in PEM.
    """

    user: str | None = None
    password_file: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def check(self, server: Server) -> None:
        """Raises CredentialsError if they cannot be used for this server."""
        if (self.certificate is None) != (self.key is None):
            raise CredentialsError("certificate and key belong together: one of them is missing")
        if not server.is_encrypted and (self.ca or self.certificate):
            raise CredentialsError(f"{server} has no TLS: expected mqtts:// with ca and certificate")
        self.password()
        self.context(server)

    def password(self) -> bytes | None:
        """Returns the password, None without a file. Raises CredentialsError."""
        if self.password_file is None:
            return None
        password = _read_secret(self.password_file).removeprefix(BOM_UTF8).removesuffix(b"\n").removesuffix(b"\r")
        if not 0 < len(password) <= PASSWORD_BYTES_MAX or b"\n" in password:
            raise CredentialsError(
                f"{self.password_file}: expected a password on one line, of at most {PASSWORD_BYTES_MAX} bytes"
            )
        return password

    def context(self, server: Server) -> ssl.SSLContext | None:
        """Returns a TLS context for which the broker's certificate has to be for its host name; None without TLS.

        Raises CredentialsError.
        """
        if not server.is_encrypted:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        choose(context)
        if self.ca is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            _load_authorities(context, self.ca)
        if self.certificate is not None and self.key is not None:
            _load_own(context, self.certificate, self.key)
        return context


def reason_of(error: ssl.SSLError) -> str:
    """Returns what is wrong, in OpenSSL's words if there are any."""
    return (error.reason or "it is not there, or cannot be read").replace("_", " ").lower()


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    _check_readable(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise CredentialsError(f"{path}: expected certificates of authorities in PEM: {reason_of(error)}") from error
    if not context.cert_store_stats()["x509_ca"]:
        raise CredentialsError(f"{path}: expected certificates of authorities in PEM")


def _load_own(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    for path in (certificate, key):
        _check_readable(path)
    try:
        context.load_cert_chain(certificate, key, password=_refuse_encrypted)
    except ssl.SSLError as error:
        text = f"{certificate}: expected a certificate in PEM whose key is in {key}: {reason_of(error)}"
        raise CredentialsError(text) from error
    except ValueError as error:
        raise CredentialsError(f"{key}: {error}") from error


def _refuse_encrypted() -> str:
    raise ValueError("the key is encrypted; a lander cannot ask for its password when it starts")


def _open(path: Path) -> int:
    """Opens a regular file. It never blocks, as opening a FIFO would. Raises CredentialsError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CredentialsError(f"{path}: expected a regular file")
    return descriptor


def _check_readable(path: Path) -> None:
    os.close(_open(path))


def _read_secret(path: Path) -> bytes:
    with os.fdopen(_open(path), "rb") as file:
        if os.fstat(file.fileno()).st_mode & TOO_OPEN:
            raise CredentialsError(f"{path}: others may read or change it; expected the permissions 0600 or 0640")
        try:
            return file.read(PASSWORD_BYTES_MAX + 8)
        except OSError as error:
            raise CredentialsError(f"{path}: {error.strerror}") from error
