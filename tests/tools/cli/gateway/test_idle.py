"""What a gateway loads that has nothing to do: each library is memory that a small board never gets back."""

import sys
from pathlib import Path

from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process

OURS = {"wire", "gateway", "uplink", "tools"}
HEAVY = {"http.client", "http.server", "multiprocessing.context", "zoneinfo"}
OF_ROLES = {
    "argon2": "accounts",
    "aiohttp": "WebSocket and metrics",
    "prometheus_client": "metrics",
    "serial": "a serial line",
    "nats": "a route to NATS",
    "proton": "a route by AMQP",
    "pydantic": "typer's options",
    "rich": "typer's help",
}
CONFIG = """\
name = "idle"
[store]
path = "{folder}/store"
volatile = true
[[listener]]
kind = "tcp"
port = {port}
"""


def loaded_by(config: Path) -> set[str]:
    """Returns the modules that a gateway process has imported when it is ready."""
    command = [sys.executable, "-X", "importtime", "-m", "tools.cli.main", "gateway", "run", "--config", str(config)]
    gateway = Process("gateway", command)
    gateway.start()
    try:
        gateway.says("ready")
    finally:
        gateway.stop()
    told = [line.split("|")[-1].strip() for line in gateway.lines if line.startswith("import time:")]
    assert "gateway.broker" in told
    return set(told)


def test_an_idle_gateway_loads_no_library_of_a_role_that_its_configuration_does_not_have(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(CONFIG.format(folder=tmp_path, port=free_port()))
    loaded = loaded_by(config)
    assert {name: role for name, role in OF_ROLES.items() if name in loaded} == {}
    assert HEAVY & loaded == set()
    own = {name for name in loaded if name.partition(".")[0] in OURS}
    assert not any("websocket" in name and name != "wire.bulk.websocket_frames" for name in own)
    assert "gateway.listeners.serial" not in own
