"""Where a route connects to: the URL of one server."""

from typing import NamedTuple
from urllib.parse import urlsplit

PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
WEBSOCKET_PATH = "/mqtt"  # where no path is given


class Server(NamedTuple):
    """One server: ``path`` is that of its WebSocket, with the query, and empty without WebSocket."""

    host: str
    port: int
    is_encrypted: bool
    path: str

    @property
    def authority(self) -> str:
        """Host and port, as they stand in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_server(url: str) -> Server:
    """Returns the server that a URL names.

    Raises:
        ValueError: the URL is not of the form ``mqtt://host[:port]`` or ``ws://host[:port][/path]``, or the same with
            ``mqtts`` or ``wss``.
    """
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
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        raise ValueError(f"{url!r}, expected a host name without empty parts, of at most 63 characters each") from None
    path = (parts.path or WEBSOCKET_PATH) + (f"?{parts.query}" if parts.query else "")
    if not (path.isascii() and path.isprintable()) or " " in path:
        raise ValueError(f"{url!r}, expected a path of ASCII characters without blanks")
    return Server(parts.hostname, port or usual, parts.scheme in ("mqtts", "wss"), path if is_websocket else "")
