"""How a client logs in to a broker, and by what it knows that broker."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from host.errors import ConfigError
from host.files import read_password
from host.server import Server
from host.tls import make_client_context


@dataclass(frozen=True)
class Credentials:
    """A login and files for TLS, each None where there is none.

    Each call reads the files again, so that they can be renewed.

    Args:
        user: the user name.
        password_file: a file with the password on one line, which other users can neither read nor change.
        ca: the certificates of the authorities by which the broker is known, in PEM; None: those of the system.
        certificate, key: the client's own certificate with the intermediate ones, and its key, in PEM.
    """

    user: str | None = None
    password_file: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def check(self, server: Server) -> None:
        """Raises ConfigError if they cannot be used for this server."""
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("certificate and key belong together: one of them is missing")
        if not server.is_encrypted and (self.ca or self.certificate):
            raise ConfigError(f"{server} has no TLS: expected mqtts:// with ca and certificate")
        self.password()
        self.context(server)

    def password(self) -> bytes | None:
        """Returns the password, None without a file. Raises ConfigError."""
        return None if self.password_file is None else read_password(self.password_file)

    def context(self, server: Server) -> ssl.SSLContext | None:
        """Returns the TLS context for a server, None without TLS. Raises ConfigError."""
        return make_client_context(self.ca, self.certificate, self.key) if server.is_encrypted else None
