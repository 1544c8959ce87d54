"""Listening sockets: each accepted connection is counted, goes through TLS, and gets a protocol."""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import socket
import ssl
import stat
import struct
from collections.abc import Callable

from gateway.errors import ListenError
from gateway.listeners import proxy_header
from gateway.listeners.connection_limits import AcceptedConnection, ConnectionLimits
from gateway.listeners.proxies import Proxies
from gateway.listeners.stream import CLOSE_GRACE_S
from gateway.listeners.tls import Tls
from gateway.log_fields import about
from gateway.port import host_of, network_of

ACCEPT_MOST = 64  # connections accepted before the event loop handles others
ACCEPT_PAUSE_S = 0.2  # after the system had no descriptor or memory for a connection
HANDSHAKE_S = 60.0  # limits.connect_timeout_s ends a handshake earlier
NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)  # ipv6.disable=1 of the kernel, or RestrictAddressFamilies=
UNIX_PATH_BYTES_MAX = 107  # unix(7), less the NUL at its end
WAITING_MAX = 1024  # connections that the kernel queues until they are accepted

logger = logging.getLogger(__name__)


class Acceptor:
    """Accepts connections and gives each a protocol of its own.

    Args:
        limits: decides whether there is room for a connection.
        tls: the TLS of the listener, if any.
        receive: makes the protocol of an accepted connection.
        proxies: the proxies whose connections begin with a PROXY header.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        tls: Tls | None,
        receive: Callable[[AcceptedConnection], asyncio.BaseProtocol],
        proxies: Proxies,
    ) -> None:
        self._limits = limits
        self._tls = tls
        self._receive = receive
        self._proxies = proxies
        self._sockets: list[socket.socket] = []
        self._coming: set[asyncio.Task[None]] = set()
        self._pauses: set[asyncio.TimerHandle] = set()

    def open(self, sockets: list[socket.socket]) -> None:
        """Accepts the connections of these listening sockets, which it closes in the end."""
        self._sockets = sockets
        for listening in sockets:
            listening.setblocking(False)
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    async def close(self) -> None:
        """Stops accepting and ends the TLS handshakes in progress; other connections stay."""
        for pause in self._pauses:
            pause.cancel()
        for listening in self._sockets:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        self._sockets = []
        for task in self._coming:
            task.cancel()
        if self._coming:
            await asyncio.wait(self._coming)

    def reload(self) -> None:
        """Reads the certificates again, for later connections. Raises ConfigError."""
        if self._tls is not None:
            self._tls.reload()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPT_MOST):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.error("no connection can be accepted", extra=about(reason=error.strerror))
                self._pause(listening)
                return
            self._take(connection, address)

    def _take(self, connection: socket.socket, address: object) -> None:
        connection.setblocking(False)
        counted_for, peer = describe(connection, address)
        accepted = self._limits.admit(connection, counted_for, peer)
        if accepted is None:
            connection.close()
            return
        task = asyncio.get_running_loop().create_task(self._hand_over(connection, accepted))
        self._coming.add(task)
        # Also where the task is cancelled before it has begun.
        task.add_done_callback(lambda task: self._note_handed_over(task, connection, accepted))

    async def _hand_over(self, connection: socket.socket, accepted: AcceptedConnection) -> None:
        if host_of(accepted.peer) in self._proxies and not await _follow_proxy(connection, accepted):
            accepted.leave()
            connection.close()
            return
        secured = {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": CLOSE_GRACE_S} if self._tls else {}
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self._receive(accepted), connection, ssl=self._tls.context if self._tls else None, **secured
        )

    def _note_handed_over(
        self, task: asyncio.Task[None], connection: socket.socket, accepted: AcceptedConnection
    ) -> None:
        self._coming.discard(task)
        if not task.cancelled():
            error = task.exception()
            if error is None:
                return
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
            if isinstance(error, ssl.SSLCertVerificationError):
                reason = f"{reason}: {error.verify_message}"
            elif isinstance(error, proxy_header.ProxyHeaderError):
                reason = str(error)
            logger.warning("connection failed", extra=about(peer=accepted.peer, reason=str(reason)))
        accepted.leave()
        connection.close()

    def _pause(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)

        def go_on() -> None:
            self._pauses.discard(pause)
            loop.add_reader(listening, self._accept, listening)

        pause = loop.call_later(ACCEPT_PAUSE_S, go_on)
        self._pauses.add(pause)


async def _follow_proxy(connection: socket.socket, accepted: AcceptedConnection) -> bool:
    """Counts a connection for the client in its PROXY header; False if it has ended. Raises ProxyHeaderError."""
    try:
        client = await proxy_header.read(connection)
    except (EOFError, ConnectionError):  # a proxy also looks whether the port is open
        return False
    if client is None:
        return await proxy_header.is_followed(connection)
    return accepted.move(*describe_client(*client))


def describe(connection: socket.socket, address: object) -> tuple[str, str]:
    """Returns the address of a connection as the limits count it, and as the log names it."""
    if connection.family == socket.AF_UNIX:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        user = f"unix user {struct.unpack('3i', credentials)[1]}"
        return user, user
    assert isinstance(address, tuple)
    return describe_client(address[0], address[1])


def describe_client(host: str, port: int | None) -> tuple[str, str]:
    """Returns the address of a client as the limits count it, and as the log names it: without a port if it has none.

    ``host_of`` returns the IP address in the latter.
    """
    host = host.removeprefix("::ffff:")
    name = f"[{host}]" if ":" in host else host
    return network_of(host), name if port is None else f"{name}:{port}"


def listen_tcp(kind: str, host: str, port: int) -> list[socket.socket]:
    """Listens on all addresses of a host with the same port; 0 takes a free one.

    Raises:
        ListenError: the text names kind, host and port.
    """
    sockets: list[socket.socket] = []
    try:
        if host == "::":
            return [_listen_everywhere(port)]
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
    """Returns why this machine cannot listen on an IP address, "" if it can; a host name is not resolved.

    It listens there for a moment, on a free port.
    """
    try:
        if host == "::":
            _listen_everywhere(0).close()
            return ""
    except OSError as error:
        return error.strerror or str(error)
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


def why_no_socket(path: str) -> OSError | None:
    """Returns why no Unix socket can be made at a path, None if one can; makes nothing."""
    if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
        text = f"{len(os.fsencode(path))} bytes long, expected at most {UNIX_PATH_BYTES_MAX}"
        return OSError(errno.ENAMETOOLONG, text, path)
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        number = errno.ENOTDIR if os.path.lexists(folder) else errno.ENOENT
        return OSError(number, os.strerror(number), folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        return OSError(errno.EACCES, os.strerror(errno.EACCES), folder)
    if os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
        return OSError(errno.EEXIST, "it is there already, and is no socket", path)
    return None


def _listen_everywhere(port: int) -> socket.socket:
    """Listens on all addresses of this machine; on those of IPv4 alone if its kernel has no IPv6. Raises OSError."""
    try:
        return _listen(socket.AF_INET6, ("::", port), dual=True)
    except OSError as error:
        if error.errno not in NO_IPV6:
            raise
    logger.warning("this machine has no IPv6, clients connect by IPv4 alone", extra=about(port=port))
    return _listen(socket.AF_INET, ("0.0.0.0", port))


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
    """Listens on a Unix socket; replaces one that a process has left behind.

    Raises:
        ListenError: the text names the path.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.lexists(path) and _is_left_behind(path):
            os.unlink(path)
        before = os.umask(0o777)  # no process may connect before it has its permissions
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
    """Whether a host is an address, ``localhost`` or this machine's own name.

    The owner of any other name can make it resolve to this machine, so that a web page of that name may reach it.
    """
    own = socket.gethostname().lower()
    try:
        return host in ("localhost", own, f"{own}.local") or bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _is_left_behind(path: str) -> bool:
    """Whether a path is a socket on which no process listens."""
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
