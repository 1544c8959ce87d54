"""Where a lander connects to: the URL of the broker."""

from typing import NamedTuple
from urllib.parse import urlsplit

PORTS = {"mqtt": 1883, "mqtts": 8883}


class Server(NamedTuple):
    """Host and port of a broker; as text it is its URL."""

    host: str
    port: int
    is_encrypted: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mqtt{'s' if self.is_encrypted else ''}://{host}:{self.port}"


def parse_server(url: str) -> Server:
    """Returns the server of "mqtt://host:port" or "mqtts://host:port".

    Raises ValueError; its text never shows a password.
    """
    if "@" in url:
        raise ValueError("expected mqtt://host:port without a user and a password: they have options of their own")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{url!r}: {error}") from None
    extra = parts.path.strip("/") or parts.query or parts.fragment
    if parts.scheme not in PORTS or not host or extra:
        raise ValueError(f"{url!r} is not of the form mqtt://host:port or mqtts://host:port")
    return Server(host, port or PORTS[parts.scheme], parts.scheme == "mqtts")
