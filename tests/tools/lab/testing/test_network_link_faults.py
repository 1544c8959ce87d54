import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tools.lab.testing.network_link import NetworkLink


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server in a thread of its own that sends everything back."""

    def echo(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    while data := connection.recv(1000):
                        connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=echo, args=(listener,))
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def say_and_hear(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(data)
        heard = b""
        while len(heard) < len(data) and (more := connection.recv(1000)):
            heard += more
        return heard


async def test_a_link_carries_bytes_both_ways(echo_port: int) -> None:
    link = NetworkLink("127.0.0.1", echo_port)
    port = await link.open()
    assert await asyncio.to_thread(say_and_hear, port, b"there and back") == b"there and back"
    await link.cut()


async def test_a_cut_resets_connections_and_a_mended_link_takes_new_ones_on_the_same_port(echo_port: int) -> None:
    link = NetworkLink("127.0.0.1", echo_port)
    port = await link.open()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"x")
        assert await asyncio.to_thread(connection.recv, 1) == b"x"
        await link.cut()
        with pytest.raises(ConnectionResetError):
            await asyncio.to_thread(connection.recv, 1)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(say_and_hear, port, b"y")
    assert await link.open() == port
    assert await asyncio.to_thread(say_and_hear, port, b"again") == b"again"
    await link.cut()


async def test_a_far_end_that_is_not_there_resets_the_near_one() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        link = NetworkLink("127.0.0.1", unused.getsockname()[1])
        with pytest.raises(ConnectionResetError):
            await asyncio.to_thread(say_and_hear, await link.open(), b"anybody?")
    await link.cut()


async def heard_after(port: int, data: bytes) -> tuple[bytes, float]:
    """What an echo over the link sends back, and how long that took."""
    began = asyncio.get_running_loop().time()
    heard = await asyncio.to_thread(say_and_hear, port, data)
    return heard, asyncio.get_running_loop().time() - began


async def test_a_slow_line_carries_every_byte_in_order_and_takes_its_time(echo_port: int) -> None:
    link = NetworkLink("127.0.0.1", echo_port)
    port = await link.open()
    data = bytes(range(250)) * 4
    slow = asyncio.create_task(link.slow(60.0, 0.01, 100))
    heard, took_s = await heard_after(port, data)
    assert heard == data
    assert took_s >= 0.1  # ten pieces, of 10 ms each
    slow.cancel()
    await link.cut()


async def test_a_silent_line_carries_nothing_one_way_until_the_silence_ends_and_then_everything(echo_port: int) -> None:
    link = NetworkLink("127.0.0.1", echo_port)
    port = await link.open()
    silence = asyncio.create_task(link.slow(0.3, 3600.0, ways=(False,)))
    heard, took_s = await heard_after(port, b"there and back")
    assert heard == b"there and back"
    assert took_s >= 0.25
    await silence
    assert (await heard_after(port, b"again"))[0] == b"again"
    await link.cut()


async def test_one_byte_is_corrupted_once(echo_port: int) -> None:
    link = NetworkLink("127.0.0.1", echo_port)
    port = await link.open()
    link.corrupt_after(3)
    heard = await asyncio.to_thread(say_and_hear, port, b"there and back")
    assert [place for place, (one, other) in enumerate(zip(heard, b"there and back", strict=True)) if one != other] == [
        3
    ]
    assert await asyncio.to_thread(say_and_hear, port, b"there and back") == b"there and back"
    await link.cut()


async def test_new_connections_lead_to_another_far_end_once_the_name_does(echo_port: int) -> None:
    link = NetworkLink("127.0.0.1", 1)
    port = await link.open()
    link.far_end = ("127.0.0.1", echo_port)
    assert await asyncio.to_thread(say_and_hear, port, b"here") == b"here"
    await link.cut()
