"""The folder of firmware over HTTP: plain files of its own, to this machine alone, whatever is asked for."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.counters import Counters, State
from gateway.observe.firmware import AT_ONCE, FILE_MAX
from gateway.observe.health import HealthServer
from gateway.observe.metrics import Metrics

SECRET = b"what is outside"
BIG = 3 * 1024 * 1024


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    web = tmp_path / "web"
    (web / "esp-web-tools").mkdir(parents=True)
    (web / "index.html").write_text("<p>page</p>")
    (web / "manifest.json").write_text("{}")
    (web / "0-device.bin").write_bytes(bytes(range(256)) * (BIG // 256))
    (web / "esp-web-tools/install-button.js").write_text("1;")
    (web / "notes.txt").write_bytes(SECRET)
    (web / ".hidden.js").write_bytes(SECRET)
    (tmp_path / "outside.bin").write_bytes(SECRET)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/install-button.js").write_bytes(SECRET)
    return web


@asynccontextmanager
async def serving(folder: Path | None) -> AsyncIterator[int]:
    path = None if folder is None else str(folder)
    server = HealthServer(0, Metrics(Counters(), State, list), list, firmware=path)
    await server.open()
    try:
        yield server.port
    finally:
        await server.close()


async def ask(port: int, target: str, method: str = "GET", host: str = "localhost") -> tuple[int, str, bytes]:
    """Status, head and body of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), head.decode(), body


async def test_files_of_the_folder_are_served(folder: Path) -> None:
    async with serving(folder) as port:
        status, head, body = await ask(port, "/firmware/")
        assert (status, body) == (200, b"<p>page</p>")
        assert "text/html" in head and "frame-ancestors 'none'" in head and "nosniff" in head
        assert (await ask(port, "/firmware/0-device.bin"))[2] == (folder / "0-device.bin").read_bytes()
        status, head, body = await ask(port, "/firmware/esp-web-tools/install-button.js?v=1")
        assert (status, body) == (200, b"1;") and "text/javascript" in head
        status, head, _ = await ask(port, "/firmware")
        assert status == 308 and "\r\nLocation: /firmware/\r\n" in head
        assert (await ask(port, "/healthz"))[0] == 200


async def test_head_has_the_size_and_other_methods_are_refused(folder: Path) -> None:
    async with serving(folder) as port:
        status, head, body = await ask(port, "/firmware/0-device.bin", "HEAD")
        assert (status, body) == (200, b"") and f"Content-Length: {BIG}" in head
        assert [(await ask(port, "/firmware/", method))[0] for method in ("POST", "PUT", "DELETE")] == [405] * 3


@pytest.mark.parametrize(
    "target",
    [
        "/firmware/../outside.bin",
        "/firmware/%2e%2e/outside.bin",
        "/firmware/..%2foutside.bin",
        "/firmware/%252e%252e/outside.bin",
        "/firmware//outside.bin",
        "/firmware/esp-web-tools/../../outside.bin",
        "/firmware/esp-web-tools/%2e%2e/index.html",
        "/firmware/./index.html",
        "/firmware/index.html%00.js",
        "/firmware/index.html%0a",
        "/firmware/notes.txt",
        "/firmware/.hidden.js",
        "/firmware/esp-web-tools",
        "/firmware/esp-web-tools/",
        "/firmware/missing.bin",
        "/firmware/\xb2.bin",
        f"/firmware/{'a' * 4000}.bin",
        "/firmwares/index.html",
        "/",
    ],
)
async def test_what_is_not_a_file_of_the_folder_is_not_there(target: str, folder: Path) -> None:
    async with serving(folder) as port:
        status, _, body = await ask(port, target)
        assert status in (400, 404) and SECRET not in body
        assert (await ask(port, "/firmware/manifest.json"))[2] == b"{}"


async def test_links_pipes_folders_and_files_of_any_size_are_not_there(folder: Path, tmp_path: Path) -> None:
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    (folder / "folder.bin").mkdir()
    os.mkfifo(folder / "pipe.bin")
    with (folder / "large.bin").open("wb") as file:
        file.truncate(FILE_MAX + 1)
    async with serving(folder) as port:
        for name in ("link", "folder", "pipe", "large"):
            status, _, body = await ask(port, f"/firmware/{name}.bin")
            assert (name, status) == (name, 404) and SECRET not in body
        (folder / "esp-web-tools/install-button.js").unlink()
        (folder / "esp-web-tools").rmdir()
        (folder / "esp-web-tools").symlink_to(tmp_path / "other")
        assert (await ask(port, "/firmware/esp-web-tools/install-button.js"))[0] == 404


async def test_page_of_another_name_and_a_gateway_without_the_key_get_nothing(folder: Path) -> None:
    async with serving(folder) as port:
        assert (await ask(port, "/firmware/0-device.bin", host="evil.example"))[0] == 403
    async with serving(None) as port:
        assert [(await ask(port, place))[0] for place in ("/firmware", "/firmware/", "/firmware/x.bin")] == [404] * 3


async def test_folder_that_is_not_there_yet_is_served_once_it_is(folder: Path, tmp_path: Path) -> None:
    async with serving(tmp_path / "later") as port:
        assert (await ask(port, "/firmware/"))[0] == 404
        folder.rename(tmp_path / "later")
        assert (await ask(port, "/firmware/"))[0] == 200


async def test_clients_that_do_not_read_hold_neither_metrics_nor_others_for_ever(folder: Path) -> None:
    async with serving(folder) as port:
        held = []
        for _ in range(AT_ONCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            writer.write(b"GET /firmware/0-device.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readexactly(1)
            held.append(writer)
        assert (await ask(port, "/firmware/manifest.json"))[0] == 503
        assert (await ask(port, "/healthz"))[0] == 200
        for writer in held:
            writer.transport.abort()
        async with asyncio.timeout(30):
            while (await ask(port, "/firmware/manifest.json"))[0] != 200:
                await asyncio.sleep(0.01)


async def test_file_that_became_shorter_is_not_taken_for_whole(folder: Path) -> None:
    async with serving(folder) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET /firmware/0-device.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readexactly(1)
        os.truncate(folder / "0-device.bin", 0)
        try:
            got = len(await reader.read())
        except ConnectionResetError:
            got = 0
        assert got < BIG
        writer.close()
