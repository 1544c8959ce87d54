"""What was given to one device: the files in its folder, and the keys of its configuration that use them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from host.files import read_file, read_password, read_secret
from tools.cli.site.keys import key_der, read_key
from tools.cli.site.ledger import PASSWORD, Line

CERTIFICATE_FILE, KEY_FILE, PASSWORD_FILE = "certificate.pem", "key.pem", "password"
AUTHORITY_FILE = "authority.pem"
ON_BOARD = {"ca": "authority.der", "certificate": "certificate.der", "key": "key.der"}
"""The keys of `port` in a device's configuration, and the files that they name."""


@dataclass(frozen=True)
class Given:
    """A device's name, its line in the ledger, its folder, and the site's authority.

    It holds no secret: the methods read the files when they are called, and raise ConfigError if one cannot be read.
    """

    name: str
    line: Line
    folder: Path
    authority: Path

    @property
    def has_password(self) -> bool:
        """Whether the device logs in with a password, and not with a certificate."""
        return self.line.kind == PASSWORD

    @property
    def certificate(self) -> Path:
        """The device's certificate, in PEM; there is none with a password."""
        return self.folder / CERTIFICATE_FILE

    @property
    def key(self) -> Path:
        """The certificate's key, in PEM."""
        return self.folder / KEY_FILE

    @property
    def password(self) -> Path:
        """The file of the password; there is none with a certificate."""
        return self.folder / PASSWORD_FILE

    @property
    def ends(self) -> datetime | None:
        """When the certificate ends; None for a password."""
        return datetime.fromtimestamp(self.line.ends_ms / 1000, UTC) if self.line.ends_ms else None

    def board_files(self) -> dict[str, bytes]:
        """Returns the contents of the files that `port` names, in DER, which every build of MicroPython reads."""
        found = {ON_BOARD["ca"]: _certificate_der(self.authority)}
        if not self.has_password:
            key = read_key(read_secret(self.key), None, str(self.key))
            found |= {ON_BOARD["certificate"]: _certificate_der(self.certificate), ON_BOARD["key"]: key_der(key)}
        return found

    def port(self, folder: str = "") -> dict[str, str]:
        """Returns the keys of `port` in the device's configuration, without the gateway's `host`, `port` and
        `server_name`.

        Args:
            folder: where the files lie on the board; "" is where the firmware starts.
        """
        names = ON_BOARD if not self.has_password else {"ca": ON_BOARD["ca"]}
        keys = {"kind": "tls"} | {key: f"{folder}/{name}" if folder else name for key, name in names.items()}
        if self.has_password:
            keys |= {"user": self.name, "password": read_password(self.password).decode()}
        return keys


def _certificate_der(path: Path) -> bytes:
    return x509.load_pem_x509_certificate(read_file(path)).public_bytes(serialization.Encoding.DER)
