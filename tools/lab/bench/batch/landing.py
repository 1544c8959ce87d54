"""How fast a lander turns what comes at its socket into synced landing files, and how many bytes these take."""

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.lab.figure import Figure
from tools.lab.testing.process import Process, holdfast
from wire.codec.packets import Connect, Subscribe
from wire.connection.server import ServerConnection

LEAST = 300_000  # messages/s
BYTES_MOST = 16  # of a landing file with its manifest, for each message
DEADLINE_S = 60.0
PUBACK_SIZE = 4


def landing(batches: Sequence[bytes], publishes: bytes, messages: int, rounds: int) -> Iterator[Figure]:
    """Measures the same messages as batches, and one by one.

    batches: PUBLISHes of QoS 1 with a batch each, one for each packet identifier from 1 on.
    publishes: PUBLISHes of QoS 1 with a message each, with packet identifiers from 1 on.
    messages: how many messages there are.
    rounds: how often they are sent.
    """
    ours, size = _measure(b"".join(batches), len(batches), messages, rounds)
    theirs, _ = _measure(publishes, messages, messages, rounds)
    name = "messages in synced landing files, a second of the lander's processor time"
    yield Figure(name, "messages/s", ours, theirs, LEAST)
    yield Figure(
        "bytes of a landing file and its manifest, a message", "B/message", size, None, BYTES_MOST, at_most=True
    )


def _measure(packets: bytes, acknowledgements: int, messages: int, rounds: int) -> tuple[float, float]:
    """Returns how many messages a lander lands in a second of its processor time, and the bytes of each."""
    with TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        broker = f"mqtt://127.0.0.1:{listener.getsockname()[1]}"
        argv = holdfast("lander", "run", "--volatile", "--broker", broker, "--landing", folder, "--roll-seconds", "0.5")
        process = Process("a lander", argv)
        process.start()
        try:
            listener.settimeout(DEADLINE_S)
            with _accept(listener) as client:
                process.says("subscribed")
                _send(client, packets, acknowledgements)  # Arrow loads much when it is first used
                before_s = process.cpu_s()
                for _ in range(rounds):
                    _send(client, packets, acknowledgements)
                took_s = process.cpu_s() - before_s
        finally:
            process.stop()
        size = sum(path.stat().st_size for path in Path(folder).glob("[!.]*"))
    return rounds * messages / took_s, size / ((rounds + 1) * messages)


def _accept(listener: socket.socket) -> socket.socket:
    """Returns the connection of a client that has subscribed."""
    client, _ = listener.accept()
    client.settimeout(DEADLINE_S)
    connection = ServerConnection()
    while True:
        connection.receive_data(client.recv(4096), 0)
        while (event := connection.next_event()) is not None:
            if isinstance(event, Connect):
                connection.accept(session_present=False)
            elif isinstance(event, Subscribe):
                connection.suback(event.packet_identifier, [1])
                client.sendall(connection.data_to_send())
                return client
        client.sendall(connection.data_to_send())


def _send(client: socket.socket, packets: bytes, acknowledgements: int) -> None:
    """Sends PUBLISHes, and returns when all are acknowledged."""
    client.sendall(packets)
    left = acknowledgements * PUBACK_SIZE
    while left:
        left -= len(client.recv(left))
