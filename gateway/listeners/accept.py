"""Listening sockets: TCP addresses and Unix sockets' paths."""

import contextlib
import errno
import ipaddress
import os
import socket
import stat

from gateway.errors import ListenError

UNIX_PATH_BYTES_MAX = 107  # unix(7), less the NUL at its end
WAITING_MAX = 1024  # connections that the kernel keeps for us


def listen_tcp(kind: str, host: str, port: int) -> list[socket.socket]:
    """Listens on all addresses of a host, each with the same port; 0 takes one that is free.

    Raises:
        ListenError: the text names kind, host and port.
    """
    sockets: list[socket.socket] = []
    try:
        if host == "::":
            return [_listen(socket.AF_INET6, ("::", port), dual=True)]
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            if sockets:  # "localhost" has an address of each family
                port = sockets[0].getsockname()[1]
            sockets.append(_listen(family, (address[0], port, *address[2:])))
        return sockets
    except OSError as error:
        for listening in sockets:
            listening.close()
        known = error.errno and not isinstance(error, socket.gaierror)
        reason = os.strerror(error.errno or 0) if known else error.strerror or str(error)
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise ListenError(f"listener {kind} {where}: {reason}") from error


def why_no_address(host: str) -> str:
    """Says why this machine cannot listen on an IP address, "" where it can; a name is not looked up.

    It listens there for a moment, on a port that is free.
    """
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST)
    except OSError:
        return ""
    try:
        for family, _, _, _, address in found:
            _listen(family, address).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def why_no_socket(path: str) -> str:
    """Says why no Unix socket can be made at a path, "" where one can; makes nothing."""
    if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
        return f"{path}: {len(os.fsencode(path))} bytes long, expected at most {UNIX_PATH_BYTES_MAX}"
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        return f"{folder}: {os.strerror(errno.ENOTDIR if os.path.lexists(folder) else errno.ENOENT)}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder}: {os.strerror(errno.EACCES)}"
    if os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
        return f"{path}: it is there already, and is no socket"
    return ""


def _listen(family: int, address: tuple[object, ...], *, dual: bool = False) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not dual)
        listening.bind(address)
        listening.listen(WAITING_MAX)
    except OSError:
        listening.close()
        raise
    return listening


def listen_unix(path: str, mode: int) -> socket.socket:
    """Listens on a Unix socket; one that a process has left behind is replaced.

    Raises:
        ListenError: the text names the path.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.lexists(path) and _is_left_behind(path):
            os.unlink(path)
        before = os.umask(0o777)  # nobody may connect before it has its permissions
        try:
            listening.bind(path)
        finally:
            os.umask(before)
        os.chmod(path, mode)
        listening.listen(WAITING_MAX)
    except OSError as error:
        listening.close()
        raise ListenError(f"listener unix {path}: {error.strerror or error}") from error
    return listening


def is_own_name(host: str) -> bool:
    """Whether a host's name is one that leads to this machine alone: an address, ``localhost`` or its own name.

    Any other name's owner can have it lead here, and so have a browser's page speak with this machine.
    """
    own = socket.gethostname().lower()
    try:
        return host in ("localhost", own, f"{own}.local") or bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _is_left_behind(path: str) -> bool:
    """Whether a path is a socket that nobody listens on."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        return False
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False
