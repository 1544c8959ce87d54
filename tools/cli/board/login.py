"""How `holdfast flash` logs in to the device's gateway: as the user says, or as the device itself."""

import base64
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from device.config import Config
from host.credentials import Credentials
from host.errors import ConfigError
from host.files import read_file, read_secret
from host.server import Server
from host.tls import make_client_context

PEM_BEGIN = b"-----BEGIN"
KEY_LABELS = ("PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY")


@dataclass(frozen=True)
class DeviceLogin(Credentials):
    """The login that a device's configuration has, with files in PEM or DER.

    Args:
        own_password: the password, which is in the configuration and in no file of its own.
    """

    own_password: str | None = None

    def password(self) -> bytes | None:
        return None if self.own_password is None else self.own_password.encode()

    def context(self, server: Server) -> ssl.SSLContext | None:
        if not server.is_encrypted:
            return None
        with tempfile.TemporaryDirectory() as folder:
            ca = _as_pem(self.ca, Path(folder, "ca"))
            certificate = _as_pem(self.certificate, Path(folder, "certificate"))
            if self.key is None:
                return make_client_context(ca, None, None)
            content = read_secret(self.key)
            failed: ConfigError | None = None
            for label in KEY_LABELS:
                key = Path(folder, "key")
                key.write_bytes(content if content.startswith(PEM_BEGIN) else _armoured(content, label))
                try:
                    return make_client_context(ca, certificate, key)
                except ConfigError as error:
                    failed = failed or error
            raise ConfigError(f"{self.key}: expected the key of {self.certificate}: {failed}")


def device_gateway(config: Path, keys: Config) -> tuple[Server, DeviceLogin] | None:
    """Returns the first gateway of a device's configuration that is reached by a network, and the device's login."""
    for port in keys.ports:
        if port.kind == "uart":
            continue
        is_tls = port.kind == "tls"
        files = {key: getattr(port, key, None) for key in ("ca", "certificate", "key")} if is_tls else {}
        paths = {key: config.parent / name.lstrip("/") for key, name in files.items() if name}
        return (
            Server(port.host, port.port, is_encrypted=is_tls, path=""),
            DeviceLogin(port.user, **paths, own_password=port.password),
        )
    return None


def _as_pem(path: Path | None, made: Path) -> Path | None:
    if path is None:
        return None
    content = read_file(path)
    if content.startswith(PEM_BEGIN):
        return path
    made.write_bytes(_armoured(content, "CERTIFICATE"))
    return made


def _armoured(content: bytes, label: str) -> bytes:
    return b"\n".join(
        [f"-----BEGIN {label}-----".encode(), base64.encodebytes(content).strip(), f"-----END {label}-----\n".encode()]
    )
