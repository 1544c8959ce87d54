"""The page about displays: its configuration is one, and its program for MicroPython receives what a gateway sends."""

import asyncio
import re
import ssl
from pathlib import Path

from gateway.config.load import load
from tests.gateway.multicast.support import group, plain, ports, sending
from tests.gateway.support import until
from tests.house.repository import ROOT
from tests.support.coroutines import after_each_test
from tools.lab.micropython import MicroPython
from tools.lab.testing.process import Process

LONG_S = 60.0
PAGE = (ROOT / "docs/how-to/multicast-displays.md").read_text()
_displays: list[Process] = []


@after_each_test
async def kill_displays() -> None:
    while _displays:
        await asyncio.to_thread(_displays.pop().kill)


def program(folder: Path, port: int) -> Path:
    """The page's program with the values of this machine."""
    (text,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    authority = folder / "authority.der"
    authority.write_bytes(ssl.PEM_cert_to_DER_cert((folder / "authority.pem").read_text()))
    values = [('"plant.example.org", 8883', f'"localhost", {port}'), ("192.168.1.50", "127.0.0.1")]
    for shown, here in [*values, ("authority.der", str(authority))]:
        assert shown in text
        text = text.replace(shown, here)
    path = folder / "display.py"
    path.write_text(text)
    return path


def test_the_configuration_of_the_page_can_be_loaded(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    config, _ = load(path)
    assert [one.topics for one in config.multicast] == [("displays/#",)]


async def test_the_program_of_the_page_shows_what_comes_and_takes_the_next_key(
    micropython: MicroPython, tmp_path: Path
) -> None:
    async with sending(tmp_path, group()) as broker:
        publisher = await plain(broker)
        await publisher.publish("displays/1", b"retained", retain=True)
        argv = [*micropython.argv, "-X", "heapsize=256wk", str(program(tmp_path, ports(broker)[1]))]
        display = Process("a display", argv, environment=micropython.environment())
        display.start()
        _displays.append(display)
        assert await asyncio.to_thread(display.says, "retained", LONG_S) == "displays/1 retained"
        await publisher.publish("displays/1", b"over multicast")
        assert await asyncio.to_thread(display.says, "over", LONG_S) == "displays/1 over multicast"
        broker.reload()
        await until(lambda: broker.overview.state().multicast[0].key_number == 2, "the next key is used")
        await publisher.publish("displays/2", b"under the next key")
        assert await asyncio.to_thread(display.says, "next key", LONG_S) == "displays/2 under the next key"
