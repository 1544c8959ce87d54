"""A real browser without a window: it opens a page, and tells what it shows."""

import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_START_S = 60


class Page:
    """A page that is loaded. `errors` has the errors of the browser's console, `requests` all that it asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)
        self.errors: list[str] = []
        self.requests: list[str] = []

    async def evaluate(self, script: str) -> Any:
        """Returns the value of an expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async for message in self._socket:
            said = message.json()
            if said.get("method") == "Log.entryAdded":
                self.errors.append(said["params"]["entry"]["text"])
            if said.get("method") == "Network.requestWillBeSent":
                self.requests.append(said["params"]["request"]["url"])
            if said.get("id") == number:
                return said["result"]
        raise ConnectionError("the browser has ended")


@asynccontextmanager
async def open_page(place: Path | str, profile: Path) -> AsyncIterator[Page]:
    """Opens a file or URL in Chromium, by its DevTools protocol. Without it the test is skipped, but not in CI."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        assert "CI" not in os.environ, "no Chromium is installed"
        pytest.skip("no Chromium is installed")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
    with subprocess.Popen([program, *options, "about:blank"], stderr=subprocess.DEVNULL) as process:
        try:
            port = _wait_for_port(process, profile / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    (tab,) = [one for one in await answer.json() if one["type"] == "page"]
                async with session.ws_connect(tab["webSocketDebuggerUrl"]) as socket:
                    page = Page(socket)
                    await page.call("Log.enable")
                    await page.call("Network.enable")
                    url = place if isinstance(place, str) else place.absolute().as_uri()
                    await page.call("Page.navigate", url=url)
                    loaded = "new Promise(done => document.readyState == 'complete' ? done() : onload = done)"
                    await page.evaluate(loaded)
                    yield page
        finally:
            process.terminate()


def _wait_for_port(process: "subprocess.Popen[bytes]", file: Path) -> int:
    """Returns the port that the browser chose and wrote to a file."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        if file.exists() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.05)
    raise TimeoutError(f"{process.args!r} has not opened a port")
