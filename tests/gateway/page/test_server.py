"""The status page over HTTP: which requests it answers, with what, and how much a viewer may cost."""

import asyncio
import base64
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.accounts import make_account, save_account
from gateway.errors import ListenError
from gateway.page import server
from gateway.page.server import PageServer
from tests.gateway.page.serving import OK, ask, page_of, paged
from tests.gateway.support import connected
from tools.lab.testing.client import LONG_S

PASSWORD = b"a long enough password"


def basic(user: str, password: bytes = PASSWORD) -> str:
    return f"Authorization: Basic {base64.b64encode(user.encode() + b':' + password).decode()}"


@pytest.fixture
def guarded(tmp_path: Path) -> dict[str, Any]:
    """The settings of a gateway that alice may watch, and bob may not."""
    for user in ("alice", "bob"):
        save_account(tmp_path / "accounts", make_account(user, PASSWORD, with_scram=False))
    (tmp_path / "rules").write_text("allow alice watch test-*\nallow * publish,subscribe #\n")
    return {"accounts": str(tmp_path / "accounts"), "acl": str(tmp_path / "rules")}


@asynccontextmanager
async def events(page: PageServer, path: str = "/events", *headers: str) -> AsyncIterator[asyncio.StreamReader]:
    """A viewer that follows the page, behind the head of its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", page.port, limit=1 << 20)
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", *headers]
    writer.write("".join(f"{line}\r\n" for line in lines).encode() + b"\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    assert head.startswith(OK) and "text/event-stream" in head, head
    try:
        yield reader
    finally:
        writer.close()


async def next_event(reader: asyncio.StreamReader) -> tuple[str, dict[str, Any]]:
    """The version and the data of the next event."""
    async with asyncio.timeout(LONG_S):
        while not (line := (await reader.readline()).decode()).startswith("id: "):
            assert line
        data = (await reader.readline()).decode()
    return line[4:].strip(), json.loads(data.removeprefix("data: "))


async def test_page_is_one_file_with_a_policy_that_names_each_source(tmp_path: Path) -> None:
    async with page_of(tmp_path) as (_, page):
        head, body = await ask(page)
    assert head.startswith(OK)
    policy = re.findall(r"Content-Security-Policy: (.*)", head)[0]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy and "form-action 'none'" in policy
    assert re.findall(r'(?:src|href)="(?!#|/)', body) == []
    assert "It has no route and no link" in body and "aiohttp" not in head


async def test_page_that_a_name_of_another_owner_points_to_is_refused(tmp_path: Path) -> None:
    async with page_of(tmp_path) as (_, page):
        for host, status in (
            ("evil.example", "403"),
            ("evil.example:80", "403"),
            ("127.0.0.1", "200"),
            ("[::1]", "200"),
        ):
            head, _ = await ask(page, "/", f"Host: {host}")
            assert head.split()[1] == status, host


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"), "200"),
        ("/", ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"), "403"),
        ("/events", ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"), "403"),
        ("/icon.svg", ("Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"), "403"),
        ("/icon.svg", ("Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"), "200"),
    ],
)
async def test_page_of_another_site_may_lead_here_and_load_nothing(
    tmp_path: Path, path: str, headers: tuple[str, ...], status: str
) -> None:
    async with page_of(tmp_path) as (_, page):
        head, _ = await ask(page, path, *headers)
    assert head.split()[1] == status


@pytest.mark.parametrize(
    ("method", "path", "status"), [("POST", "/", 405), ("DELETE", "/events", 405), ("GET", "/x", 404)]
)
async def test_page_only_shows(tmp_path: Path, method: str, path: str, status: int) -> None:
    async with page_of(tmp_path) as (_, page):
        head, _ = await ask(page, path, method=method)
    assert head.split()[1] == str(status)


async def test_gateway_with_accounts_asks_a_visitor_to_log_in_on_loopback_too(
    tmp_path: Path, guarded: dict[str, Any]
) -> None:
    async with page_of(tmp_path / "store", **guarded) as (_, page):
        head, body = await ask(page)
        assert head.split()[1] == "401" and 'WWW-Authenticate: Basic realm="Holdfast"' in head
        assert "test-gateway" not in head + body
        for path in ("/", "/events", "/devices", "/icon.svg"):
            head, _ = await ask(page, path, basic("alice", b"wrong"), method="HEAD")
            assert head.split()[1] == "401"
        assert (await ask(page, "/", basic("bob")))[0].split()[1] == "403"
        assert (await ask(page, "/", basic("mallory")))[0].split()[1] == "401"
        assert (await ask(page, "/", "Authorization: Basic ???"))[0].split()[1] == "401"
        assert (await ask(page, "/", basic("alice")))[0].startswith(OK)


async def test_rule_lets_visitors_without_a_user_watch_on_loopback_but_not_through_a_proxy(
    tmp_path: Path, guarded: dict[str, Any]
) -> None:
    Path(guarded["acl"]).write_text("allow - watch *\n")
    async with page_of(tmp_path / "store", **guarded) as (_, page):
        assert (await ask(page))[0].startswith(OK)
        assert (await ask(page, "/", "X-Forwarded-For: 203.0.113.9"))[0].split()[1] == "401"


async def test_guesses_have_the_limits_of_other_logins(tmp_path: Path, guarded: dict[str, Any]) -> None:
    async with page_of(tmp_path / "store", **guarded) as (_, page):
        assert (await ask(page, "/", basic("alice")))[0].startswith(OK)
        statuses = [(await ask(page, "/", basic("alice", b"%d" % guess)))[0].split()[1] for guess in range(12)]
        assert statuses == ["401"] * 10 + ["429"] * 2
        assert (await ask(page, "/", basic("alice")))[0].startswith(OK)  # it was right a moment ago


async def test_viewer_is_sent_away_when_its_account_or_its_rule_is_gone(
    tmp_path: Path, guarded: dict[str, Any]
) -> None:
    async with page_of(tmp_path / "store", **guarded) as (broker, page):
        for change in ("rule", "account"):
            async with events(page, "/events", basic("alice")) as reader:
                await next_event(reader)
                if change == "rule":
                    Path(guarded["acl"]).write_text("deny alice watch *\n")
                else:
                    save_account(tmp_path / "accounts", make_account("alice", b"another password", with_scram=False))
                broker.reload()
                async with asyncio.timeout(LONG_S):
                    await reader.read()
            assert (await ask(page, "/", basic("alice")))[0].split()[1] in ("401", "403")
            Path(guarded["acl"]).write_text("allow alice watch *\n")
            broker.reload()


async def test_viewer_gets_what_has_changed_and_nothing_else(tmp_path: Path) -> None:
    async with page_of(tmp_path) as (broker, page):
        _, body = await ask(page)
        version = re.findall(r'data-version="(.*)"', body)[0]
        async with events(page, f"/events?since={version}") as reader:
            await connected(broker, "garage")
            news: dict[str, Any] = {}
            while "garage" not in news.get("devices", ""):
                version, data = await next_event(reader)
                news |= data["sections"]
            assert "way" in news and "room" not in news and "missing" not in news
        async with events(page, "/events", f"Last-Event-ID: {version}") as reader:
            _, data = await next_event(reader)
            assert "devices" not in data["sections"]
        async with events(page, "/events?since=another-life-5") as reader:
            _, data = await next_event(reader)
            assert "devices" in data["sections"] and "room" in data["sections"]


async def test_number_of_viewers_is_bounded_and_one_that_goes_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "VIEWERS_MAX", 2)
    async with page_of(tmp_path) as (_, page):
        async with events(page), events(page):
            head, _ = await ask(page, "/events")
            assert head.split()[1] == "503" and "Retry-After" in head
            assert (await ask(page))[0].startswith(OK)
        statuses: list[str] = []

        async def has_room() -> None:
            while not statuses or statuses[-1] == "503":
                statuses.append((await ask(page, "/events", method="HEAD"))[0].split()[1])

        await asyncio.wait_for(has_room(), LONG_S)


async def test_viewer_that_takes_nothing_is_dropped_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "VIEWERS_MAX", 2)
    monkeypatch.setattr(server, "SEND_S", 0.2)
    monkeypatch.setattr(server, "TICK_S", 0.02)
    async with page_of(tmp_path) as (broker, page):
        devices, number = broker.services.shared.devices, 0
        for number in range(40):
            devices.note_connected(f"{number:-^200}", None, "192.0.2.1", 5)
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", page.port))
            slow.sendall(b"GET /events?since=all HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with events(page) as other:
                assert (await ask(page, "/events", method="HEAD"))[0].split()[1] == "503"
                status = "503"
                async with asyncio.timeout(LONG_S):
                    while status == "503":
                        number += 1
                        devices.note_connected(f"{number:-^200}", None, "192.0.2.1", 5)
                        await next_event(other)
                        status = (await ask(page, "/events", method="HEAD"))[0].split()[1]
                assert status == "200"
                await next_event(other)


async def test_all_devices_are_on_pages_of_two_hundred_by_name(tmp_path: Path) -> None:
    async with page_of(tmp_path) as (broker, page):
        for number in range(450):
            broker.services.shared.devices.note_connected(f"device-{number:03}", None, "192.0.2.1", 5)
        found = [(await ask(page, f"/devices?from={first}"))[1] for first in (0, 200, 400)]
        names = [name for body in found for name in re.findall(r"device-\d+", body)]
        assert names == [f"device-{number:03}" for number in range(450)]
        _, main = await ask(page)
        assert '410 more are on <a href="/devices">' in main
        for odd in ("-1", "x", "9" * 50, "٣"):
            assert (await ask(page, f"/devices?from={odd.encode().hex() if not odd.isascii() else odd}"))[0].startswith(
                OK
            )


async def test_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with page_of(tmp_path) as (broker, page):
        second = paged(broker, port=page.port)
        with pytest.raises(ListenError, match=rf"listener page 127.0.0.1:{page.port}: Address already in use"):
            await second.__aenter__()
