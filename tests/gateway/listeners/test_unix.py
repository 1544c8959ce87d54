"""The Unix socket: its permissions decide which users may connect."""

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

from gateway.config.schema import UnixConfig
from gateway.errors import ListenError
from tests.gateway.listeners.host import EchoHost, hosting


async def test_the_socket_has_its_permissions_and_goes_with_the_listener(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with hosting(UnixConfig(str(path), mode=0o600)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


async def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with hosting(UnixConfig(str(path)), kind=EchoHost):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.close()


async def test_a_socket_in_use_or_another_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    async with hosting(UnixConfig(str(path))):
        with pytest.raises(ListenError, match=f"^listener unix {path}: Address already in use$"):
            async with hosting(UnixConfig(str(path))):
                pass
        assert path.exists()
    path.write_text("a file of another program")
    with pytest.raises(ListenError, match="Address already in use"):
        async with hosting(UnixConfig(str(path))):
            pass
    assert path.read_text() == "a file of another program"


async def test_a_path_that_cannot_be_is_named() -> None:
    with pytest.raises(ListenError, match=r"^listener unix /nowhere/socket: No such file or directory$"):
        async with hosting(UnixConfig("/nowhere/socket")):
            pass
    with pytest.raises(ListenError, match="path too long"):
        async with hosting(UnixConfig("/nowhere/" + "x" * 200)):
            pass


async def test_the_process_keeps_its_own_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        async with hosting(UnixConfig(str(tmp_path / "socket"))):
            assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
