"""A cut link carries nothing."""

import asyncio
import socket

import pytest

from tools.lab.testing.network_link import NetworkLink

DEADLINE_S = 20


@pytest.mark.parametrize("turns", range(8))
async def test_connection_that_is_just_being_accepted_is_cut_as_well(turns: int) -> None:
    """However many iterations of the event loop the connection takes."""
    loop = asyncio.get_running_loop()
    far = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    link = NetworkLink("127.0.0.1", far.sockets[0].getsockname()[1])
    await link.open()
    client = socket.create_connection(("127.0.0.1", link.port), timeout=DEADLINE_S)
    client.setblocking(False)
    for _ in range(turns):
        await asyncio.sleep(0)
    await link.cut()
    try:
        async with asyncio.timeout(DEADLINE_S):
            assert await loop.sock_recv(client, 1) == b""
    except ConnectionResetError:
        pass
    finally:
        client.close()
        far.close()
        await far.wait_closed()


async def test_two_faults_may_cut_a_link_at_once_and_both_open_it_again() -> None:
    link = NetworkLink("127.0.0.1", 1)
    await link.open()
    await asyncio.gather(link.cut(), link.cut())
    await asyncio.gather(link.open(), link.open(), link.cut(), link.open())
    assert not link.is_cut
    await link.cut()
