"""The header of the PROXY protocol, version 2, in which a proxy names the client whose connection it passes on.

It is the first that a proxy sends, before TLS and HTTP [haproxy, doc/proxy-protocol.txt, section 2.2]::

    signature, 12 bytes │ version, command │ family, transport │ length │ addresses and ports │ additions (TLVs)
                                                               └─ 2 bytes, of all that follows
"""

import asyncio
import socket
import struct

from gateway.listeners.proxies import address_of

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
SIGNATURE_1 = b"PROXY "
START = struct.Struct(">12sBBH")
REST_MAX = 2048  # bytes of addresses and additions; proxies send some hundred
VERSION = 2
LOCAL, PROXY = 0, 1
UNSPECIFIED, IPV4, IPV6, UNIX = range(4)
STREAM = 1
ADDRESSES = {IPV4: struct.Struct(">4s4sHH"), IPV6: struct.Struct(">16s16sHH"), UNIX: struct.Struct(">108s108s")}


class ProxyHeaderError(Exception):
    """A proxy's connection does not begin with a header that can be used; the text says why."""


async def read(connection: socket.socket) -> tuple[str, int] | None:
    """Reads the header from a socket, and not a byte more.

    It has no time limit of its own: ``ConnectionLimits`` shuts the socket down.

    Returns:
        The client's IP address and port; None if the connection is the proxy's own, or it does not know the client's.

    Raises:
        ProxyHeaderError: there is no header, or it cannot be used.
        EOFError: the connection has ended first.
    """
    start = await _read_exactly(connection, START.size)
    return client_in(start, await _read_exactly(connection, length_of_rest(start)))


async def is_followed(connection: socket.socket) -> bool:
    """Waits for the first byte behind a header, which stays in the socket; False if the connection ends instead.

    A proxy that looks every two seconds whether the gateway is well sends a header alone.
    """
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
        return bool(connection.recv(1, socket.MSG_PEEK))
    except ConnectionError:
        return False
    finally:
        loop.remove_reader(connection)


def length_of_rest(start: bytes) -> int:
    """Returns how many bytes of the header follow its first 16. Raises ProxyHeaderError."""
    signature, version_and_command, _, length = START.unpack(start)
    if signature != SIGNATURE:
        if start.startswith(SIGNATURE_1):
            raise ProxyHeaderError("its PROXY header is of version 1, expected version 2")
        raise ProxyHeaderError("it comes from an address of proxy_from and has no PROXY header")
    if version_and_command >> 4 != VERSION:
        raise ProxyHeaderError(f"its PROXY header is of version {version_and_command >> 4}, expected version 2")
    if length > REST_MAX:
        raise ProxyHeaderError(f"its PROXY header has {length} bytes after the first 16, expected {REST_MAX} at most")
    return int(length)


def client_in(start: bytes, rest: bytes) -> tuple[str, int] | None:
    """Returns the client that a header names, as ``read`` does. Raises ProxyHeaderError.

    Args:
        start: its first 16 bytes, which ``length_of_rest`` has checked.
        rest: all others.
    """
    _, version_and_command, family_and_transport, _ = START.unpack(start)
    command, family, transport = version_and_command & 15, family_and_transport >> 4, family_and_transport & 15
    if command == LOCAL:
        return None
    if command != PROXY:
        raise ProxyHeaderError(f"its PROXY header has the unknown command {command}")
    if family == UNSPECIFIED:
        return None
    if family not in ADDRESSES or transport != STREAM:
        raise ProxyHeaderError(f"its PROXY header is for no TCP connection: {family_and_transport:#04x}")
    addresses = ADDRESSES[family]
    if len(rest) < addresses.size:
        raise ProxyHeaderError(f"its PROXY header has {len(rest)} bytes for addresses, expected {addresses.size}")
    if family == UNIX:
        return None
    client, _, port, _ = addresses.unpack_from(rest)
    return str(address_of(client)), port


async def _read_exactly(connection: socket.socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < size:
        more = await loop.sock_recv(connection, size - len(data))
        if not more:
            raise EOFError
        data += more
    return data
