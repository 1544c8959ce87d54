"""The command `move`: it proves itself, or the device is back in time, whenever the power goes."""

import contextlib
import json
from typing import Any

import pytest

from device.mqtt.commands import Commands
from flash_store.errors import StoreFull
from tests.device.field.world import ANSWERS, ATTIC, CELLAR, FAULTY, LIAR, SECRET, World

DEADLINE_S = 60
NOWHERE = {"ssid": "nowhere", "password": SECRET}
SECOND = {"host": "second.local"}
LIVES = 100
CUTS_MAX = 60  # flash operations from a command to its answer, and some more


def moved(seed: int, cut_at: int | None = None, **told: Any) -> World:
    """A device that gets the command, with the power cut at that flash operation behind it, until all is answered."""
    world = World(seed)
    world.settle()
    began_ms = world.board.now_ms
    world.command(command="move", deadline_s=DEADLINE_S, **told)
    assert world.live(lambda: world.answers(), 10 * DEADLINE_S, cut_at), world.board.lines[-5:]
    world.reached_ms.append(world.board.now_ms - began_ms)
    return world


def is_at_rest(world: World, host: str) -> bool:
    device = world.device
    assert device is not None
    return world.live(lambda: world.is_at(host) and device.log.settings.get("message") is None, 60)


def test_a_move_to_another_network_and_broker_is_confirmed_there_and_outlasts_starts(seed: int) -> None:
    world = moved(seed, network=CELLAR, port=SECOND)
    assert world.answers("second.local") == [{"command": "move", "done": True, "correlation": "call 7"}]
    assert is_at_rest(world, "second.local")
    for _ in range(3):
        world.device = None
        assert world.live(lambda: world.is_at("second.local"), 60)
    assert world.board.joined == "cellar"
    assert "network and port are those of a move" in world.said()
    assert '"moved": true' in world.said()


@pytest.mark.parametrize(
    ("told", "missing"),
    [
        ({"network": NOWHERE}, "no connection in 40 s"),
        ({"network": LIAR}, "no connection in 40 s"),
        ({"port": {"host": "nowhere.local"}}, "no connection in 40 s"),
        ({"network": CELLAR}, "no connection in 40 s"),
        ({"network": CELLAR, "port": {"host": "nowhere.local"}}, "no connection in 40 s"),
    ],
)
def test_a_move_to_a_place_that_does_not_exist_comes_back_in_time(
    told: dict[str, Any], missing: str, seed: int
) -> None:
    world = moved(seed, **told)
    error = f"{missing}; the device is at its old place"
    assert world.answers("gateway.local") == [{"command": "move", "error": error, "correlation": "call 7"}]
    assert world.reached_ms[0] <= DEADLINE_S * 1000
    assert is_at_rest(world, "gateway.local")
    assert world.board.joined == "attic"


@pytest.mark.parametrize("cut_at", range(1, CUTS_MAX))
def test_a_power_cut_at_any_flash_operation_of_a_vain_move_leaves_the_device_where_it_was(
    cut_at: int, seed: int
) -> None:
    world = moved(seed, cut_at, network=NOWHERE)
    assert len(world.answers()) == 1 and "the device is at its old place" in world.answers("gateway.local")[0]["error"]
    assert world.reached_ms[0] <= DEADLINE_S * 1000 + 2_000 * world.cuts
    assert is_at_rest(world, "gateway.local")
    world.device = None
    assert world.live(lambda: world.is_at("gateway.local"), 60)
    assert len(world.answers()) == 1


@pytest.mark.parametrize("cut_at", range(1, CUTS_MAX))
def test_a_power_cut_at_any_flash_operation_of_a_good_move_leaves_the_device_at_one_of_both_places(
    cut_at: int, seed: int
) -> None:
    world = moved(seed, cut_at, network=CELLAR, port=SECOND)
    (answer,) = world.answers()
    place = "second.local" if "done" in answer else "gateway.local"
    assert world.answers(place) == [answer]
    assert is_at_rest(world, place)
    world.device = None
    assert world.live(lambda: world.is_at(place), 60)
    assert len(world.answers()) == 1


@pytest.mark.parametrize("number", range(LIVES))
def test_device_is_back_in_time_whenever_it_is_reset_and_however_often(number: int, seed: int) -> None:
    """Power cuts and resets at any moment, up to four in one move, with radios that lie."""
    world = World(seed + number)
    chance = world.chance
    world.settle()
    began_ms = world.board.now_ms
    network = chance.choice((NOWHERE, LIAR))
    world.command(command="move", deadline_s=DEADLINE_S, network=network)
    for _ in range(chance.randrange(5)):
        cut_at = chance.choice((None, chance.randrange(1, 30)))
        world.live(lambda: world.answers(), chance.uniform(0, DEADLINE_S / 2), cut_at)
        world.reset()
    assert world.live(lambda: world.answers(), 10 * DEADLINE_S), world.board.lines[-5:]
    assert len(world.answers()) == 1 and "the device is at its old place" in world.answers("gateway.local")[0]["error"]
    assert world.board.now_ms - began_ms - world.off_ms <= DEADLINE_S * 1000
    assert is_at_rest(world, "gateway.local")


def test_a_broker_that_grants_no_subscription_is_left_again(seed: int) -> None:
    world = World(seed)
    world.brokers["second.local"].grants = []
    world.settle()
    world.command(command="move", deadline_s=DEADLINE_S, port=SECOND)
    assert world.live(lambda: world.answers(), 2 * DEADLINE_S)
    assert "no subscription to commands in 40 s" in world.answers("gateway.local")[0]["error"]
    assert is_at_rest(world, "gateway.local")


def test_a_broker_that_takes_no_message_is_left_again(seed: int) -> None:
    world = World(seed)
    world.brokers["second.local"].refuses = lambda publish: 0x87
    world.settle()
    world.command(command="move", deadline_s=DEADLINE_S, port=SECOND)
    assert world.live(lambda: world.answers(), 2 * DEADLINE_S)
    assert "no message acknowledged in 40 s" in world.answers("gateway.local")[0]["error"]
    assert is_at_rest(world, "gateway.local")


def test_a_moved_device_can_be_moved_again_and_comes_back_to_where_it_was_moved(seed: int) -> None:
    world = moved(seed, network=CELLAR, port=SECOND)
    assert is_at_rest(world, "second.local")
    world.command(8, "second.local", command="move", deadline_s=DEADLINE_S, network=NOWHERE)
    assert world.live(lambda: len(world.answers()) == 2, 2 * DEADLINE_S)
    assert "error" in world.answers("second.local")[1]
    assert is_at_rest(world, "second.local") and world.board.joined == "cellar"
    world.command(
        9, "second.local", command="move", deadline_s=DEADLINE_S, port={"host": "gateway.local"}, network=ATTIC
    )
    assert world.live(lambda: world.answers("gateway.local"), 2 * DEADLINE_S)
    assert world.answers("gateway.local")[0]["done"]
    assert is_at_rest(world, "gateway.local")


def test_the_same_command_once_more_is_tried_once_more(seed: int) -> None:
    world = moved(seed, network=NOWHERE)
    assert is_at_rest(world, "gateway.local")
    world.command(8, command="move", deadline_s=DEADLINE_S, network=NOWHERE)
    assert world.live(lambda: len(world.answers()) == 2, 2 * DEADLINE_S)
    assert "no connection in 40 s" in world.answers()[1]["error"]


def test_a_file_that_was_changed_since_counts_again(seed: int) -> None:
    world = moved(seed, network=CELLAR, port=SECOND)
    assert is_at_rest(world, "second.local")
    world.change["network"] = [ATTIC, {"ssid": "new", "password": None}]
    world.device = None
    assert world.live(lambda: world.is_at("gateway.local"), 60)
    world.device = None
    assert world.live(lambda: world.is_at("gateway.local") and "place" not in world.settings(), 60)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, "port: expected an object of keys and values, or a list of 1 to 4"),
        ({"network": {"ssid": "x" * 33, "password": SECRET}}, "network.ssid: expected a string of 1 to 32 bytes"),
        ({"network": {"ssid": "cellar"}}, "network.password: expected a string or null"),
        ({"network": {"ssid": "cellar", "password": {"is": SECRET}}}, "network.password: expected a string or null"),
        ({"network": {"ssid": {"cellar": SECRET}, "password": None}}, "network.ssid: expected a string of 1 to 32"),
        ({"network": ["cellar", SECRET]}, "network[0]: expected an object of keys and values"),
        ({"network": SECRET}, "network: expected an object of keys and values"),
        ({"network": CELLAR, "channel": 1}, "channel is no key that this firmware knows"),
        ({"port": {"host": "h", "port": 70_000}}, "port.port: expected an integer from 1 to 65535"),
        ({"port": {"host": "h", "user": "u"}}, "port.password: expected a string"),
        (
            {"port": {"kind": "tls", "host": "h", "ca": "/nowhere"}},
            "expected files on the device, such as /nowhere",
        ),
        ({"network": CELLAR, "deadline_s": 9}, "deadline_s: expected an integer from 10 to 3600"),
        ({"network": CELLAR, "deadline_s": True}, "deadline_s: expected an integer from 10 to 3600"),
    ],
)
def test_a_wrong_move_is_refused_by_the_name_of_its_key_without_its_value(
    told: dict[str, Any], expected: str, seed: int
) -> None:
    world = World(seed)
    world.settle()
    world.command(**{"command": "move", "deadline_s": DEADLINE_S, **told})
    assert world.live(lambda: world.answers(), 30)
    (answer,) = world.answers()
    assert expected in answer["error"]
    assert SECRET not in world.said()
    assert world.starts == 1


def test_a_move_that_has_no_room_among_the_settings_is_refused(seed: int) -> None:
    world = World(seed)
    world.settle()
    assert world.device is not None
    world.device.log.settings.set("other", bytes(1500))
    world.command(command="move", network=CELLAR)
    assert world.live(lambda: world.answers(), 30)
    assert world.answers()[0]["error"].startswith("it cannot be stored: setting 'place'")
    assert world.starts == 1


def test_a_start_that_fails_at_the_new_place_is_the_only_one_there(seed: int) -> None:
    world = moved(seed, network=FAULTY)
    assert "the device started anew during the trial" in world.answers("gateway.local")[0]["error"]
    assert is_at_rest(world, "gateway.local")


def test_a_move_that_may_come_twice_is_refused(seed: int) -> None:
    world = World(seed)
    world.settle()
    assert world.device is not None
    act = Commands(world.device).act
    payload = json.dumps({"command": "move", "network": CELLAR}).encode()
    assert act("commands", payload, 0) == {
        "command": "move",
        "error": "expected QoS 2: a move must not be done twice",
    }
    assert not world.device.wants_restart


def test_passwords_are_in_nothing_that_the_device_tells(seed: int) -> None:
    port = {**SECOND, "user": "u", "password": SECRET}
    for world in (moved(seed, network=NOWHERE), moved(seed, network=CELLAR, port=port)):
        assert world.answers()
        assert SECRET not in world.said()


def test_a_full_store_does_not_keep_the_device_at_a_place_that_fails(seed: int) -> None:
    world = World(seed)
    world.settle()
    world.brokers["gateway.local"].takes = False
    assert world.device is not None
    with contextlib.suppress(StoreFull):
        while True:
            world.device.publish("filling", bytes(900))
    world.command(command="move", deadline_s=DEADLINE_S, network=NOWHERE)
    assert world.live(lambda: world.starts > 2 and world.is_at("gateway.local"), DEADLINE_S)
    world.brokers["gateway.local"].takes = True
    assert world.device is not None
    world.device.port.cut()
    assert world.live(lambda: world.answers(), 600)
    assert "the device is at its old place" in world.answers()[0]["error"]


@pytest.mark.parametrize("network", [NOWHERE, CELLAR])
def test_a_move_over_mqtt_3_1_1_ends_the_same_way(network: dict[str, Any], seed: int) -> None:
    world = World(seed, mqtt_version="3.1.1")
    world.settle()
    world.command(command="move", deadline_s=DEADLINE_S, network=network, port=SECOND)
    assert world.live(lambda: any(one.topic == ANSWERS for broker in world.both() for one in broker.arrived), 120)
    place = "second.local" if network is CELLAR else "gateway.local"
    assert is_at_rest(world, place)
    world.device = None
    assert world.live(lambda: world.is_at(place), 60)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"network": CELLAR}, "network: expected none: virtual has no Wi-Fi to join"),
        ({"port": {"kind": "uart", "path": "1:4:5", "baud": 12}}, "port.baud: expected a speed that this board knows"),
        (
            {"port": {**SECOND, "user": "u", "password": SECRET, "authentication": "scram-sha-256"}},
            "port.authentication: expected none with mqtt_version 3.1.1",
        ),
    ],
)
def test_a_move_that_the_board_cannot_even_try_is_refused(told: dict[str, Any], expected: str, seed: int) -> None:
    world = World(seed, mqtt_version="3.1.1", network=None)
    world.board.has_no_wifi()
    world.settle()
    world.command(command="move", deadline_s=DEADLINE_S, **told)
    assert world.live(lambda: any(one.topic == ANSWERS for broker in world.both() for one in broker.arrived), 60)
    (answer,) = (json.loads(one.payload) for one in world.brokers["gateway.local"].arrived if one.topic == ANSWERS)
    assert expected in answer["error"]
    assert world.starts == 1
