"""Devices in a real Home Assistant: discovery, units, newest values only, and a start of either side."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gateway.connectors.reading import Reading
from gateway.connectors.senml import encode
from tests.support.home_assistant import HASS, RealHomeAssistant
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process, holdfast

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not HASS, reason="there is no hass: install homeassistant, or name its command in HOLDFAST_HASS"
    ),
]
HOSTILE = '{{ states("x") }}/+#"'


class Site:
    """A gateway that shows its devices, and Home Assistant."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        config = folder / "gateway.toml"
        config.write_text(
            f'name = "site"\n[store]\npath = "{folder / "store"}"\n'
            f'[[listener]]\nkind = "tcp"\nhost = "127.0.0.1"\nport = {self.port}\n[home_assistant]\n'
        )
        self.gateway = Process("gateway", holdfast("gateway", "run", "--config", str(config)), ready="ready")
        self.assistant = RealHomeAssistant(folder / "home-assistant")

    def start_gateway(self) -> None:
        self.gateway.start()
        self.gateway.wait_ready()

    def publish(self, device: str, payload: bytes, topic: str = "site/t") -> None:
        command = ["mosquitto_pub", "-V", "5", "-h", "127.0.0.1", "-p", str(self.port), "-i", device, "-t", topic]
        subprocess.run([*command, "-q", "1", "-s"], input=payload, check=True)

    def publish_until(self, device: str, payload: bytes, name: str, state: str) -> None:
        """Publishes again and again, as devices do, until Home Assistant shows it."""

        def is_shown() -> bool:
            self.publish(device, payload)
            return self.assistant.shows(name, state)

        self.assistant.until(is_shown, f"{name} is {state}")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    try:
        site.start_gateway()
        site.assistant.start()
        site.assistant.welcome()
        site.assistant.add_mqtt(site.port)
        yield site
    finally:
        site.assistant.stop()
        site.gateway.stop()


def test_devices_are_shown_with_their_newest_values_over_starts_of_both_sides(site: Site) -> None:
    assistant = site.assistant
    site.publish_until("roof", encode("roof", now_ms(), [Reading("temp", 21.5, "Cel")], "cbor"), "roof temp", "21.5")
    shown = assistant.states()["roof temp"]["attributes"]
    assert (shown["unit_of_measurement"], shown["device_class"]) == ("°C", "temperature")
    site.publish_until("door", b'{"open": true, "by": "badge 7"}', "door open", "on")
    assert assistant.shows("door by", "badge 7")

    old = encode("roof", now_ms() - 3_600_000, [Reading("temp", -40.0, "Cel")], "cbor")
    site.publish("roof", old)
    site.publish_until("door", b'{"open": false}', "door open", "off")  # behind the old one
    assert assistant.shows("roof temp", "21.5")

    site.publish_until(HOSTILE, msgspec.json.encode({HOSTILE: 3}), f"{HOSTILE} {HOSTILE}", "3")

    known = set(assistant.states())
    assistant.stop()
    assistant.start()
    site.publish_until("door", b'{"open": true}', "door open", "on")
    site.gateway.stop()
    site.start_gateway()
    site.publish_until("door", b'{"open": false}', "door open", "off")
    assert set(assistant.states()) >= {name for name in known if name.startswith(("roof", "door"))}


def now_ms() -> int:
    return int(time.time() * 1000)
