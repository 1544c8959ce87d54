"""A route's login and TLS: what it shows the next broker, and how it checks that broker."""

import contextlib
import ssl
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from gateway.routes import (
    ConfigError,
    ConfigSource,
    Validity,
    check_readable,
    load_authorities,
    load_own,
    read_secret,
    validities,
)
from uplink.config.tls import TLS_FILES, RouteTlsConfig
from wire.bulk.tls import choose

PASSWORD_BYTES_MAX = 65_535  # [section 3.1.3.6]


class Login(Protocol):
    """The keys of a route, to whatever system, that say how it logs in."""

    @property
    def name(self) -> str: ...

    @property
    def password_file(self) -> str | None: ...

    @property
    def tls(self) -> RouteTlsConfig | None: ...

    @property
    def is_encrypted(self) -> bool: ...


class Credentials:
    """One route's password and certificates. Each connection reads the files again, so that they can be renewed."""

    def __init__(self, config: Login) -> None:
        self._config = config

    def read(self) -> tuple[bytes | None, ssl.SSLContext | None]:
        """Returns the password and the TLS context, None for each that the route has not. Raises ConfigError."""
        return self.password(), self.context()

    def password(self) -> bytes | None:
        """Returns the password, None without a password file. Raises ConfigError."""
        file = self._config.password_file
        return None if file is None else _read_password(Path(file))

    def context(self) -> ssl.SSLContext | None:
        """Returns the TLS context, None if no server of the route uses TLS. Raises ConfigError."""
        return _make_context(self._config.tls or RouteTlsConfig()) if self._config.is_encrypted else None


def check(source: ConfigSource, routes: Mapping[int, Login]) -> None:
    """Notes each file that a route of a configuration file names and that cannot be used."""
    for number, route in routes.items():
        named = [(f"route[{number}].{key}", file) for key, file in files_of(route)]
        if not check_readable(source, named):
            credentials = Credentials(route)
            for key, read in (("password_file", credentials.password), ("tls", credentials.context)):
                try:
                    read()
                except ConfigError as error:
                    source.add(f"route[{number}].{key}", str(error), may_pass=error.may_pass)


def files_of(route: Login) -> Iterator[tuple[str, str]]:
    """Yields the keys with file names in a route's table, and these files."""
    tls = {} if route.tls is None else msgspec.structs.asdict(route.tls)
    files = {key: getattr(route, key, None) for key in ("password_file", "credentials")}
    files |= {f"tls.{key}": tls.get(key) for key in TLS_FILES}
    return ((key, file) for key, file in files.items() if file is not None)


def validities_of(routes: Iterable[Login]) -> list[tuple[str, Validity]]:
    """Returns the validity of the certificate that each route shows; a file that cannot be read now has none."""
    found = []
    for route in routes:
        if route.tls is not None and route.tls.certificate is not None:
            with contextlib.suppress(ConfigError, ValueError):  # the next connection tells
                found += [(f"route {route.name}", one) for one in validities(route.tls.certificate)]
    return found


def private_keys(routes: Sequence[Login]) -> list[str]:
    """Returns the files with the private keys of routes."""
    return [route.tls.key for route in routes if route.tls is not None and route.tls.key is not None]


def _read_password(path: Path) -> bytes:
    password = read_secret(path).removeprefix(BOM_UTF8).removesuffix(b"\n").removesuffix(b"\r")
    if not 0 < len(password) <= PASSWORD_BYTES_MAX or b"\n" in password:
        raise ConfigError(f"{path}: expected a password on one line, of at most {PASSWORD_BYTES_MAX} bytes")
    return password


def _make_context(config: RouteTlsConfig) -> ssl.SSLContext:
    """Returns a context for which the broker's certificate has to be for the host name in the configuration."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    choose(context, config.minimum_version, config.ciphers)
    if config.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        load_authorities(context, config.ca)
    if config.certificate is not None and config.key is not None:
        load_own(context, config.certificate, config.key)
    if config.alpn is not None:
        context.set_alpn_protocols([config.alpn])
    return context
