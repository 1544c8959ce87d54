"""A real Home Assistant in a process of its own, with the MQTT integration, asked over its REST interface."""

import json
import os
import shlex
import shutil
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process

HASS = shlex.split(os.environ.get("HOLDFAST_HASS", "")) or [found for found in [shutil.which("hass")] if found]
"""The command that starts Home Assistant, empty: there is none. `HOLDFAST_HASS` may have one with arguments."""
READY_S = 120.0


class RealHomeAssistant:
    """Home Assistant with a user and a token. It keeps what it knows in `folder`, over a restart too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._url = f"http://127.0.0.1:{self._port}"
        self._token = ""
        folder.mkdir()
        lines = "http:", f"  server_port: {self._port}", "  server_host: 127.0.0.1", "api:", "config:", "onboarding:"
        (folder / "configuration.yaml").write_text("\n".join(lines) + "\n")
        self._process = Process("hass", [*HASS, "-c", str(folder)])

    def start(self) -> None:
        """Returns when it answers."""
        self._process.start()
        self.until(self._answers, "Home Assistant answers")

    def _answers(self) -> bool:
        try:
            urlopen(f"{self._url}/api/onboarding", timeout=5).read()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """Ends it as a service manager does."""
        self._process.stop()

    def welcome(self) -> None:
        """Makes its first user, and logs in."""
        user = {"client_id": self._url, "name": "test", "username": "test", "password": "test", "language": "en"}
        code = self.ask("/api/onboarding/users", user)["auth_code"]
        form = urlencode({"grant_type": "authorization_code", "code": code, "client_id": self._url})
        self._token = json.load(urlopen(f"{self._url}/auth/token", form.encode(), timeout=10))["access_token"]

    def add_mqtt(self, port: int) -> None:
        """Adds the MQTT integration with the broker at a port, as its user would."""
        flow = self.ask("/api/config/config_entries/flow", {"handler": "mqtt"})
        done = self.ask(f"/api/config/config_entries/flow/{flow['flow_id']}", {"broker": "127.0.0.1", "port": port})
        assert done["type"] == "create_entry", done

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Returns the answer of its REST interface."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        try:
            return json.load(urlopen(Request(f"{self._url}{path}", data, headers), timeout=30))
        except HTTPError as error:
            raise AssertionError(f"{path}: {error}: {error.read()!r}") from None

    def states(self) -> dict[str, dict[str, Any]]:
        """What it shows of MQTT's devices: state and attributes, by the shown name."""
        return {one["attributes"].get("friendly_name", one["entity_id"]): one for one in self.ask("/api/states")}

    def shows(self, name: str, state: str) -> bool:
        """Whether it shows a state under a name."""
        return self.states().get(name, {}).get("state") == state

    @staticmethod
    def until(holds: Any, what: str) -> None:
        """Returns when it holds."""
        deadline = time.monotonic() + READY_S
        while not holds():
            assert time.monotonic() < deadline, f"not within {READY_S} s: {what}"
            time.sleep(0.2)
