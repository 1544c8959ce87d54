"""The button that brings a device back to its file."""

import sys
from collections.abc import Iterator

import pytest

from tests.device.field.world import CELLAR, World
from tools.cli.paths import source_root

SHIM = str(source_root() / "tools/lab/sim/boards")
BUTTON = {"pin": 14, "hold_s": 5}
SECOND = {"host": "second.local"}


@pytest.fixture
def pins(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, int]]:
    """The levels of the pins of a simulated board."""
    monkeypatch.syspath_prepend(SHIM)
    before = set(sys.modules)
    import machine

    machine.disconnect_all()
    yield machine.PINS
    for name in set(sys.modules) - before:
        if name in ("machine", "device.field.button") or name.startswith("_"):
            sys.modules.pop(name, None)


def held(world: World, pins: dict[int, int], seconds: float) -> bool:
    """Holds the button for so long; returns whether the device has started anew."""
    starts = world.starts
    pins[14] = 0
    world.live(lambda: world.starts > starts, seconds)
    pins[14] = 1
    return world.live(lambda: world.starts > starts, 1)


def test_a_held_button_ends_a_move_and_a_changed_interval_and_keeps_messages(pins: dict[int, int], seed: int) -> None:
    world = World(seed, field={"button": BUTTON})
    world.settle()
    world.command(command="interval", interval_ms=120_000)
    assert world.live(lambda: world.answers(), 60)
    world.command(8, command="move", network=CELLAR, port=SECOND)
    assert world.live(lambda: world.answers("second.local"), 300)
    assert world.live(lambda: world.is_at("second.local"), 60)
    world.brokers["second.local"].takes = False
    assert world.device is not None
    number = world.device.publish("doors/front", b"open")
    assert held(world, pins, 6)
    assert world.live(lambda: world.is_at("gateway.local"), 60)
    assert not {"place", "interval_ms"} & set(world.settings())
    assert world.live(lambda: any(one.topic == "doors/front" for one in world.brokers["gateway.local"].arrived), 60)
    assert number


def test_a_button_that_is_touched_does_nothing(pins: dict[int, int], seed: int) -> None:
    world = World(seed, field={"button": BUTTON})
    world.settle()
    for _ in range(5):
        assert not held(world, pins, 4.5)


def test_a_button_ends_a_trial_and_the_command_is_answered(pins: dict[int, int], seed: int) -> None:
    world = World(seed, field={"button": BUTTON})
    world.settle()
    world.command(command="move", network={"ssid": "nowhere", "password": None})
    assert world.live(lambda: world.starts == 2, 10)
    assert held(world, pins, 7)
    assert world.live(lambda: world.answers(), 60)
    assert "the device was reset by its button" in world.answers("gateway.local")[0]["error"]
