"""The status page in a real Chromium."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gateway.auth.accounts import make_account, save_account
from gateway.broker import Broker
from gateway.counters import RouteState
from gateway.page.observer import Observer
from gateway.page.server import PageServer
from gateway.store.tables import drops
from tests.gateway.page.serving import add_scene, drop, observer_of, paged
from tests.gateway.support import running
from tests.support.browser import Page, open_page
from tools.lab.testing.client import LONG_S

LOOKS = Path(__file__).with_name("looks.js").read_text()
CONTRAST_LEAST = 4.5  # of text, and 3 of lines [WCAG 2.2, 1.4.3 and 1.4.11]
HOSTILE = "<img src=x onerror=document.title='taken'>"


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[tuple[Broker, Observer, PageServer, Page]]:
    """A gateway with something of each kind, and its page in the browser."""
    async with running(folder / "store") as broker:
        observer = observer_of(broker)
        await add_scene(broker, observer)
        async with paged(broker, observer) as served, open_page(url_of(served), folder / "browser") as page:
            yield broker, observer, served, page


def url_of(served: PageServer) -> str:
    return f"http://127.0.0.1:{served.port}/"


async def shows(page: Page, expression: str, what: str) -> Any:
    """Waits until an expression is true in the page; returns its value."""
    until_s = time.monotonic() + LONG_S
    while not (value := await page.evaluate(expression)):
        assert time.monotonic() < until_s, f"not within {LONG_S} s: {what}"
        await asyncio.sleep(0.02)
    return value


def text_of(name: str) -> str:
    return f"document.getElementById('{name}').innerText"


async def resize(page: Page, width: int, *, is_dark: bool = False) -> None:
    await page.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
    await page.call("Emulation.setEmulatedMedia", features=[scheme])


async def test_page_shows_each_part_asks_no_other_host_and_has_no_error(tmp_path: Path) -> None:
    async with scene(tmp_path) as (_, _, served, page):
        await shows(page, f"{text_of('state')} == 'It renews itself.'", "news have come")
        assert "Something is wrong" in await page.evaluate(text_of("verdict"))
        assert "cannot connect: No route to host" in await page.evaluate(text_of("hops"))
        devices = await page.evaluate(text_of("devices"))
        assert "40 in their rhythm, 1 unusually silent, 1 of unknown rhythm" in devices
        first = await page.evaluate("document.querySelector('#devices tbody tr').innerText.split('\\t')")
        assert first[:2] == ["! silent", "greenhouse-north"] and first[3] == "58 s"
        charts = await page.evaluate(
            "[...document.querySelectorAll('.chart')].map(one => one.querySelector('.area').getBBox().width)"
        )
        assert charts[:3] == [288, 288, 288] and len(charts) == 5
        assert {one.split("/")[2] for one in page.requests} == {f"127.0.0.1:{served.port}"}
        assert {one.split("/")[3].partition("?")[0] for one in page.requests} == {"", "events", "icon.svg"}
        assert page.errors == []
        policy = "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title=1\">')"
        await page.evaluate(policy)
        assert (await page.evaluate("document.title")).startswith("Holdfast")


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 720, 1200])
async def test_nothing_overlaps_nothing_is_too_wide_and_all_text_has_contrast(
    tmp_path: Path, width: int, is_dark: bool
) -> None:
    async with scene(tmp_path) as (broker, _, _, page):
        long = "W" * 200
        broker.overview.routes.append(RouteState(long, last_error=long))
        broker.services.shared.devices.note_connected("مرحبا" * 30 + "e" + "\u0301" * 30, None, "192.0.2.1", 5)
        await shows(page, f"{text_of('hops')}.includes('WWWW')", "the long name has come")
        await resize(page, width, is_dark=is_dark)
        await page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        looks = await page.evaluate(LOOKS)
    assert looks["texts"] > 200
    assert looks["overlaps"] == []
    assert looks["width"] <= width
    assert looks["least"]["ratio"] >= CONTRAST_LEAST, looks["least"]
    assert looks["edges"] >= 3


async def test_click_on_a_gap_names_hop_reason_and_range_and_news_leave_it_open(tmp_path: Path) -> None:
    async with scene(tmp_path) as (broker, _, _, page):
        await shows(page, "document.querySelectorAll('.gap').length == 2", "both gaps are in the picture")
        click = "new MouseEvent('click', {bubbles: true, cancelable: true, view: window})"
        await page.evaluate(f"[...document.querySelectorAll('.gap')].pop().dispatchEvent({click})")
        await shows(page, "document.querySelector('details[open]') != null", "a range is open")
        facts = dict(
            await page.evaluate(
                "[...document.querySelectorAll('details[open] dt')]"
                ".map(one => [one.innerText, one.nextElementSibling.innerText])"
            )
        )
        assert facts["hop"] == "from this gateway over route city"
        assert facts["reason"].startswith("evicted: a limit was reached")
        assert facts["range"] == "garage-7, epoch 0000002a, seq 100 to 139"
        drop(broker, drops.OVERSIZE, "session/wall", "garage-9", range(7, 8))
        await broker.log.submit([])
        await shows(page, f"{text_of('missing')}.includes('oversize')", "the new range is on the page")
        assert await page.evaluate("document.querySelector('details[open] dd').innerText") == facts["hop"]


async def test_page_is_readable_and_gaps_open_without_scripts(tmp_path: Path) -> None:
    async with scene(tmp_path) as (_, _, served, page):
        await page.call("Emulation.setScriptExecutionDisabled", value=True)
        await page.call("Page.enable")
        await page.call("Page.navigate", url=url_of(served))
        await shows(page, "document.readyState == 'complete'", "the page is there")
        assert await page.evaluate(text_of("state")) == "Load the page again to see it anew."
        assert "greenhouse-north" in await page.evaluate(text_of("devices"))
        place = await page.evaluate(
            "(one => (one.scrollIntoView(), one = one.getBoundingClientRect(), [one.x + 9, one.y + 9]))"
            "(document.querySelector('summary'))"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await page.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
        assert await page.evaluate("document.querySelector('details').open")


async def test_page_says_when_the_gateway_does_not_answer_and_goes_on_when_it_does(tmp_path: Path) -> None:
    async with (
        running(tmp_path / "store") as broker,
        paged(broker) as served,
        open_page(url_of(served), tmp_path / "browser") as page,
    ):
        await shows(page, f"{text_of('state')} == 'It renews itself.'", "news have come")
        await served.close()
        await shows(page, "document.body.classList.contains('stale')", "it is known to be old")
        assert "does not answer" in await page.evaluate(text_of("state"))
        async with paged(broker, port=served.port):
            broker.services.shared.devices.note_connected(HOSTILE, None, "192.0.2.1", 5)
            await shows(page, "!document.body.classList.contains('stale')", "news come again")
            await shows(page, f"{text_of('devices')}.includes('<img')", "what is new has come")
            assert (await page.evaluate("document.title")).startswith("Holdfast")
            assert await page.evaluate("document.images.length") == 0


async def test_person_logs_in_once_and_the_page_renews_itself(tmp_path: Path) -> None:
    save_account(tmp_path / "accounts", make_account("alice", b"a pass:word", with_scram=False))
    (tmp_path / "rules").write_text("allow alice watch *\n")
    guarded = {"accounts": str(tmp_path / "accounts"), "acl": str(tmp_path / "rules")}
    async with running(tmp_path / "store", **guarded) as broker, paged(broker) as served:
        url = f"http://alice:{quote('a pass:word')}@127.0.0.1:{served.port}/"
        async with open_page(url, tmp_path / "browser") as page:
            await shows(page, f"{text_of('state')} == 'It renews itself.'", "news have come")
            assert page.errors == []


async def test_pictures_of_the_how_to_page_are_of_a_page_that_is_still_like_that(tmp_path: Path) -> None:
    """The sizes that the pictures were taken at show the same parts."""
    async with scene(tmp_path) as (_, _, _, page):
        await resize(page, 1000)
        taken = await page.call("Page.captureScreenshot", format="png")
        headings = await page.evaluate("[...document.querySelectorAll('h2')].map(one => one.innerText)")
    assert base64.b64decode(taken["data"]).startswith(b"\x89PNG")
    how_to = (Path(__file__).parents[3] / "docs/how-to/status-page.md").read_text()
    assert [one for one in headings if f"**{one}**" not in how_to] == []
