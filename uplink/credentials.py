"""What a route shows the next broker, and by what it knows that broker."""

import ssl
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.config_errors import ConfigSource
from gateway.config_file import check_readable, read_file
from gateway.errors import ConfigError
from gateway.pem import load_authorities, load_own
from uplink.config import TLS_FILES, RouteConfig, RouteTlsConfig, parse_broker

PASSWORD_BYTES_MAX = 65_535  # [section 3.1.3.6]


class Credentials:
    """Those of one route. What is read is read anew each time, so that it can be renewed while the gateway runs."""

    def __init__(self, config: RouteConfig) -> None:
        self._config = config

    def read(self) -> tuple[bytes | None, ssl.SSLContext | None]:
        """Returns the password, and what TLS needs; None where there is none. Raises ConfigError."""
        return self.password(), self.context()

    def password(self) -> bytes | None:
        """Raises ConfigError."""
        file = self._config.password_file
        return None if file is None else _read_password(Path(file))

    def context(self) -> ssl.SSLContext | None:
        """Raises ConfigError."""
        _, _, is_encrypted = parse_broker(self._config.broker)
        return _make_context(self._config.tls or RouteTlsConfig()) if is_encrypted else None


def check(source: ConfigSource, routes: Mapping[int, RouteConfig]) -> None:
    """Notes each file that a route of a configuration file names and that cannot be used."""
    for number, route in routes.items():
        tls = {} if route.tls is None else msgspec.structs.asdict(route.tls)
        files = {"password_file": route.password_file} | {f"tls.{key}": tls.get(key) for key in TLS_FILES}
        named = [(f"route[{number}].{key}", file) for key, file in files.items() if file is not None]
        if not check_readable(source, named):
            credentials = Credentials(route)
            for key, read in (("password_file", credentials.password), ("tls", credentials.context)):
                try:
                    read()
                except ConfigError as error:
                    source.add(f"route[{number}].{key}", str(error))


def secret_files(routes: list[RouteConfig]) -> list[str]:
    """Returns the password files and private keys of routes."""
    passwords = [route.password_file for route in routes if route.password_file is not None]
    return passwords + [route.tls.key for route in routes if route.tls is not None and route.tls.key is not None]


def _read_password(path: Path) -> bytes:
    password = read_file(path).removesuffix(b"\n").removesuffix(b"\r")
    if not 0 < len(password) <= PASSWORD_BYTES_MAX or b"\n" in password:
        raise ConfigError(f"{path}: expected a password on one line, of at most {PASSWORD_BYTES_MAX} bytes")
    return password


def _make_context(config: RouteTlsConfig) -> ssl.SSLContext:
    """The other broker has to show a certificate for the name that the route calls it by."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if config.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        load_authorities(context, config.ca)
    if config.certificate is not None and config.key is not None:
        load_own(context, config.certificate, config.key)
    return context
