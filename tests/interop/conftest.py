"""MQTT.js, for the tests that try the gateway with it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.cli.paths import cache_directory

HERE = Path(__file__).parent / "mqtt_js"


@pytest.fixture(scope="session")
def packages() -> Path:
    """MQTT.js and what it needs, as package-lock.json has them, in the cache."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            assert "CI" not in os.environ, f"{program} is not installed"
            pytest.skip(f"{program} is not installed, so MQTT.js cannot be tried")
    lock = (HERE / "package-lock.json").read_bytes()
    folder = cache_directory() / "mqtt_js"
    installed = folder / "installed.json"
    if not installed.exists() or installed.read_bytes() != lock:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder)
        subprocess.run(
            ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder, check=True, timeout=120
        )
        installed.write_bytes(lock)
    return folder
