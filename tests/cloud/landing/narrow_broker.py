"""A broker with a smaller window than its client's: it has messages for the first subscriber, and sends few at once."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from wire.codec.packets import Connect, Puback, Subscribe
from wire.connection.server import ServerConnection
from wire.errors import Closed


@contextmanager
def narrow_broker(payloads: Sequence[bytes], window: int) -> Iterator[int]:
    """Serves one client on a free loopback port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, list(payloads), window), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def _serve(listener: socket.socket, payloads: list[bytes], window: int) -> None:
    client, _ = listener.accept()
    connection = ServerConnection()
    room = 0
    with client:
        while data := client.recv(65536):
            connection.receive_data(data, 0)
            while (event := connection.next_event()) is not None:
                if isinstance(event, Closed):
                    return
                if isinstance(event, Connect):
                    connection.accept(session_present=False)
                elif isinstance(event, Subscribe):
                    connection.suback(event.packet_identifier, [1])
                    room = window
                elif isinstance(event, Puback):
                    room += 1
            while room and payloads:
                connection.publish("x", payloads.pop(0))
                room -= 1
            client.sendall(connection.data_to_send())
