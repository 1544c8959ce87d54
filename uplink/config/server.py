"""Where a route connects to: the URL of one server."""

import os
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

REFERENCE = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(?::([0-9]{1,5}))?")  # [section 4.13]
PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
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


def parse_server(url: str, *, may_be_local: bool = False) -> Server:
    """Returns the server that a URL names.

    Args:
        url: the URL.
        may_be_local: whether it may also name a Unix socket, as ``unix:///path``.

    Raises:
        ValueError: the URL is not of the form ``mqtt://host[:port]`` or ``ws://host[:port][/path]``, or the same with
            ``mqtts`` or ``wss``.
    """
    if may_be_local and url.startswith("unix:"):
        path = url.removeprefix("unix://")
        if not path.startswith("/") or "\0" in path or len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
            raise ValueError(f"{url!r}, expected unix:///path with a path of at most {UNIX_PATH_BYTES_MAX} bytes")
        return Server("", 0, is_encrypted=False, path="", socket=path)
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    usual = PORTS.get(parts.scheme)
    if "@" in parts.netloc:
        raise ValueError("expected no user and no password in it: they are `user` and `password_file`")
    has_path = bool(parts.path or parts.query)
    is_websocket = parts.scheme in ("ws", "wss")
    if usual is None or not parts.hostname or port == 0 or parts.fragment or (has_path and not is_websocket):
        raise ValueError(f"{url!r}, expected mqtt://host:port, mqtts://host:port, ws://host:port/path or wss://…")
    if not _is_host(parts.hostname):
        raise ValueError(f"{url!r}, expected a host name without empty parts, of at most 63 characters each")
    path = (parts.path or WEBSOCKET_PATH) + (f"?{parts.query}" if parts.query else "")
    if not (path.isascii() and path.isprintable()) or " " in path:
        raise ValueError(f"{url!r}, expected a path of ASCII characters without blanks")
    return Server(parts.hostname, port or usual, parts.scheme in ("mqtts", "wss"), path if is_websocket else "")


def servers_referred_to(reference: str, server: Server) -> Iterator[Server]:
    """Yields the servers in a Server Reference [section 4.13]; what names none is passed over.

    They differ from the server that refers to them by host and port alone: a reference never leads to a server without
    TLS, nor to one that is checked less.
    """
    for one in reference.split(" ") if not server.socket else ():
        found = REFERENCE.fullmatch(one)
        if found is not None and _is_host(found[1].strip("[]")) and 0 < int(found[2] or server.port) < 1 << 16:
            yield server._replace(host=found[1].strip("[]"), port=int(found[2] or server.port))


def _is_host(name: str) -> bool:
    try:
        return bool(name.encode("idna"))
    except UnicodeError:
        return False
