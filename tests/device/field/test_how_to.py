"""The page about devices in the field: what stands there is taken as it stands."""

import json
import re
from typing import Any

from device.config import Config
from tests.device.field.world import World
from tests.device.mqtt.virtual import KEYS
from tools.cli.paths import source_root

PAGE = (source_root() / "docs/how-to/devices-in-the-field.md").read_text()


def blocks() -> list[dict[str, Any]]:
    return [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]


def test_the_keys_of_the_page_are_keys_of_a_configuration() -> None:
    config = Config({**KEYS, **next(keys for keys in blocks() if "command" not in keys)})
    assert config.field is not None
    assert (config.field.battery.full_scale_mv, config.field.button.hold_s, config.field.log_bytes) == (6600, 10, 4096)


def test_the_commands_of_the_page_are_done(seed: int) -> None:
    world = World(seed, field={"log_bytes": 4096})
    world.brokers["192.168.7.10"] = world.brokers.pop("second.local")
    world.board.networks["cellar"] = {"192.168.7.10"}
    world.settle()
    log, move = sorted((keys for keys in blocks() if "command" in keys), key=lambda keys: str(keys["command"]))
    world.command(7, **log)
    assert world.live(lambda: world.answers(), 60)
    assert "boot 1" in world.answers()[0]["lines"][0]
    world.command(8, **move)
    assert world.live(lambda: len(world.answers()) == 2, 300)
    assert world.answers("192.168.7.10")[0]["done"]
