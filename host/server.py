"""Where a client connects to: the URL of one server."""

import os
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

REFERENCE = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(?::([0-9]{1,5}))?")  # [section 4.13]
PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
SCHEMES = (*PORTS, "unix")
FORMS = {"ws": "ws://host:port/path", "wss": "wss://host:port/path", "unix": "unix:///path"}
WEBSOCKET_PATH = "/mqtt"  # where no path is given
UNIX_PATH_BYTES_MAX = 107  # unix(7), less the NUL at its end


class Server(NamedTuple):
    """One server: ``path`` is the path of its WebSocket, with the query, and empty without WebSocket.

    ``socket`` is the path of its Unix socket, empty for a server with a host. As text it is its URL, without the query,
    which may have a token.
    """

    host: str
    port: int
    is_encrypted: bool
    path: str
    socket: str = ""

    def __str__(self) -> str:
        if self.socket:
            return f"unix://{self.socket}"
        scheme = ("wss" if self.is_encrypted else "ws") if self.path else ("mqtts" if self.is_encrypted else "mqtt")
        return f"{scheme}://{self.authority}{self.path.partition('?')[0]}"

    @property
    def authority(self) -> str:
        """Host and port, as they stand in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_server(url: str, schemes: Collection[str] = SCHEMES) -> Server:
    """Returns the server that a URL names.

    Args:
        url: the URL.
        schemes: what it may begin with: "mqtt", "mqtts", "ws", "wss", or "unix" for a Unix socket.

    Raises:
        ValueError: the URL is of none of the forms ``mqtt://host[:port]``, ``ws://host[:port][/path]`` and
            ``unix:///path`` that these schemes allow. The text never shows a password.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # it has one half of the brackets of an IPv6 address
        raise _not_of_a_form(url.rpartition("@")[2], schemes) from None
    if parts.scheme == "unix" and "unix" in schemes:
        path = url.removeprefix("unix://")
        if not path.startswith("/") or "\0" in path or len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
            raise ValueError(f"{url!r}, expected unix:///path with a path of at most {UNIX_PATH_BYTES_MAX} bytes")
        return Server("", 0, is_encrypted=False, path="", socket=path)
    if "@" in (parts.netloc or url):
        raise ValueError("expected no user and no password in it: they are `user` and `password_file`")
    try:
        port = parts.port
    except ValueError:
        port = 0
    is_websocket = parts.scheme in ("ws", "wss")
    has_path = bool(parts.path.strip("/") or parts.query)
    host = parts.hostname
    if parts.scheme not in schemes or not host or port == 0 or parts.fragment or (has_path and not is_websocket):
        raise _not_of_a_form(url, schemes)
    if not _is_host(host):
        raise ValueError(f"{url!r}, expected a host name without empty parts, of at most 63 characters each")
    path = (parts.path or WEBSOCKET_PATH) + (f"?{parts.query}" if parts.query else "")
    if not (path.isascii() and path.isprintable()) or " " in path:
        raise ValueError(f"{url!r}, expected a path of ASCII characters without blanks")
    is_encrypted = parts.scheme in ("mqtts", "wss")
    return Server(host, port or PORTS[parts.scheme], is_encrypted, path if is_websocket else "")


def servers_referred_to(reference: str, server: Server) -> Iterator[Server]:
    """Yields the servers in a Server Reference [section 4.13]; what names none is passed over.

    They differ from the server that refers to them by host and port alone: a reference never leads to a server without
    TLS, nor to one that is checked less.
    """
    for one in reference.split(" ") if not server.socket else ():
        found = REFERENCE.fullmatch(one)
        if found is not None and _is_host(found[1].strip("[]")) and 0 < int(found[2] or server.port) < 1 << 16:
            yield server._replace(host=found[1].strip("[]"), port=int(found[2] or server.port))


def _not_of_a_form(url: str, schemes: Collection[str]) -> ValueError:
    forms = [FORMS.get(scheme, f"{scheme}://host:port") for scheme in schemes]
    return ValueError(f"{url!r}, expected {', '.join(forms[:-1])}{' or ' * (len(forms) > 1)}{forms[-1]}")


def _is_host(name: str) -> bool:
    try:
        return bool(name.encode("idna"))
    except UnicodeError:
        return False
