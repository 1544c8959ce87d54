"""A route's login and TLS: what it shows the next broker, and how it checks that broker."""

import contextlib
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from gateway.routes import ConfigSource, check_readable
from host.errors import ConfigError
from host.files import read_password
from host.pem import Validity, validities
from host.tls import make_client_context
from uplink.config.tls import TLS_FILES, RouteTlsConfig


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
        return None if file is None else read_password(file)

    def context(self) -> ssl.SSLContext | None:
        """Returns the TLS context, None if no server of the route uses TLS. Raises ConfigError."""
        if not self._config.is_encrypted:
            return None
        tls = self._config.tls or RouteTlsConfig()
        context = make_client_context(
            tls.ca, tls.certificate, tls.key, minimum=tls.minimum_version, ciphers=tls.ciphers
        )
        if tls.alpn is not None:
            context.set_alpn_protocols([tls.alpn])
        return context


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
