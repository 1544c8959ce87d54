"""A server that only acknowledges: a CONNECT and then PUBLISHes of one length.

``python -m tools.lab.bench.broker.bare PORT``. Measured like a broker, it shows how many messages the generator itself
can send.
"""

import contextlib
import socket
import sys

from tools.lab.bench.broker.client import alike, end_of, pubacks


def serve(connection: socket.socket) -> None:
    """Serves one client until it disconnects."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.recv(1024)
    connection.sendall(b"\x20\x02\0\0")
    data = b""
    while more := connection.recv(256 * 1024):
        data += more
        at = 0
        while at < len(data) and (end := end_of(data, at)) <= len(data):
            count = alike(data, at, end)
            connection.sendall(pubacks(data, at, end - at, count))
            at += count * (end - at)
        data = data[at:]


def main(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as server:
        server.accept()[0].close()  # `Process.listens` connects once to see whether it listens
        while True:
            connection, _ = server.accept()
            with contextlib.suppress(OSError, IndexError):
                serve(connection)
            connection.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
