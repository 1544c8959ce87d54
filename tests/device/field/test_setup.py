"""A device in virtual time that is told its Wi-Fi over its console, by Improv."""

import os
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from device.config import Config
from device.field import improv
from device.field.improv import packet
from device.field.setup import RELEASE
from device.values import ConfigError
from tests.device.field.world import ATTIC, CELLAR, World
from tests.device.mqtt.virtual import KEYS
from tools.cli.paths import source_root

IMPROV: dict[str, Any] = {"field": {"improv": True}}
SEEN = [
    (b"cellar", b"", 1, -71, 3, False),
    (b"attic", b"", 1, -52, 3, False),
    (b"attic", b"", 6, -80, 3, False),
    (b"", b"", 1, -40, 0, True),
    (b"\xff\xfe", b"", 1, -41, 0, False),
    (b"guests", b"", 11, -85, 0, False),
]


class Desk:
    """A world whose device has a console, with a browser at its other end."""

    def __init__(self, seed: int, network: dict[str, Any] | None, typed: int, shown: bytearray, **change: Any) -> None:
        self.world = World(seed, network=network, **{**IMPROV, **change})
        self._typed, self._shown = typed, shown

    def say(self, content: bytes) -> None:
        os.write(self._typed, content)

    def ask(self, command: int, content: bytes = b"") -> None:
        self.say(packet(improv.COMMAND, bytes([command, len(content)]) + content))

    def tell(self, ssid: str, password: str = "") -> None:
        """Sends Wi-Fi settings."""
        texts = [text.encode() for text in (ssid, password)]
        self.ask(improv.SEND_SETTINGS, b"".join(bytes([len(text)]) + text for text in texts))

    def heard(self) -> list[tuple[int, bytes]]:
        """The packets that came since, as (kind, data)."""
        content, found = bytes(self._shown), []
        self._shown.clear()
        while (at := content.find(b"IMPROV\x01")) >= 0:
            end = at + 9 + content[at + 8]
            assert sum(content[at:end]) & 0xFF == content[end] and content[end + 1] == 10
            found.append((content[at + 7], content[at + 9 : end]))
            content = content[end:]
        return found

    def live(self, seconds: float = 1) -> list[tuple[int, bytes]]:
        """Lets the device run for so long; returns what it answered."""
        self.world.live(lambda: False, seconds)
        return self.heard()


class Desks:
    """Makes them, one after the other."""

    def __init__(self, typed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._of = typed, Shown()
        self._monkeypatch = monkeypatch

    def __call__(self, seed: int, network: dict[str, Any] | None = None, **change: Any) -> Desk:
        out = SimpleNamespace(buffer=self._of[1], write=sys.stdout.write, flush=sys.stdout.flush)
        self._monkeypatch.setattr(sys, "stdout", out)
        return Desk(seed, network, *self._of, **change)


class Shown(bytearray):
    def write(self, data: bytes) -> None:
        self.extend(data)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desks]:
    """A console and the modules of a board, which CPython has not."""
    typed_in, typed = os.pipe()
    chip, radio = ModuleType("micropython"), ModuleType("network")
    chip.kbd_intr = lambda byte: None  # type: ignore[attr-defined]
    station = SimpleNamespace(active=lambda on: None, scan=lambda: list(SEEN))
    radio.STA_IF, radio.WLAN = 0, lambda interface: station  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "micropython", chip)
    monkeypatch.setitem(sys.modules, "network", radio)
    with open(typed_in, "rb", 0) as file:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=file, fileno=file.fileno))
        yield Desks(typed, monkeypatch)
        monkeypatch.undo()
    os.close(typed)


def states(heard: list[tuple[int, bytes]]) -> list[int]:
    return [data[0] for kind, data in heard if kind == improv.STATE]


def errors(heard: list[tuple[int, bytes]]) -> list[int]:
    return [data[0] for kind, data in heard if kind == improv.ERROR]


def results(heard: list[tuple[int, bytes]]) -> list[tuple[int, list[bytes] | None]]:
    return [(data[0], improv.read_texts(data[2:])) for kind, data in heard if kind == improv.RESULT]


def test_device_without_wifi_is_told_one_and_uses_it_after_a_restart(desk: Desks, seed: int) -> None:
    made = desk(seed)
    made.live()
    made.ask(improv.GET_STATE)
    assert made.live() == [(improv.ERROR, b"\x00"), (improv.STATE, b"\x02")]
    made.tell("attic", ATTIC["password"])
    heard = made.live(5)
    assert (states(heard), errors(heard), results(heard)) == ([3, 4], [0], [(1, [])])
    assert made.world.live(lambda: made.world.is_at("gateway.local"), 30)
    made.world.reset()
    assert made.world.live(lambda: made.world.is_at("gateway.local"), 30)
    assert made.world.board.joined == "attic"


def test_device_says_what_it_is(desk: Desks, seed: int) -> None:
    made = desk(seed)
    made.ask(improv.GET_DEVICE)
    assert results(made.live()) == [(3, [b"Holdfast", RELEASE, b"virtual", b"garage-1"])]


def test_release_that_the_device_tells_is_that_of_the_package() -> None:
    assert f'\nversion = "{RELEASE.decode()}"\n' in (source_root() / "pyproject.toml").read_text()


def test_networks_are_told_once_each_strongest_first_and_their_end(desk: Desks, seed: int) -> None:
    made = desk(seed)
    made.ask(improv.GET_NETWORKS)
    assert results(made.live()) == [
        (4, [b"attic", b"-52", b"YES"]),
        (4, [b"cellar", b"-71", b"YES"]),
        (4, [b"guests", b"-85", b"NO"]),
        (4, []),
    ]


@pytest.mark.parametrize("command", [5, 6, 7, 0x80, 0xFF])
def test_command_that_it_does_not_know_is_told(command: int, desk: Desks, seed: int) -> None:
    made = desk(seed)
    made.ask(command, b"name")
    assert errors(made.live()) == [0, improv.UNKNOWN_COMMAND]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x05attic",
        b"\x05attic\x00\x00",
        b"\x09attic\x00",
        b"\x00\x00",
        b"\x02\xff\xfe\x00",
        b"\x01a\x41" + bytes(65),
    ],
)
def test_settings_that_cannot_be_used_are_told_and_change_nothing(content: bytes, desk: Desks, seed: int) -> None:
    made = desk(seed)
    made.ask(improv.SEND_SETTINGS, content)
    assert errors(made.live())[-1] == improv.BAD_COMMAND
    assert "place" not in made.world.settings()


def test_network_that_is_not_there_is_told_and_the_device_goes_on_with_its_own(desk: Desks, seed: int) -> None:
    made = desk(seed, ATTIC)
    assert made.world.live(lambda: made.world.is_at("gateway.local"), 30)
    made.tell("nowhere", "behind the moon")
    heard = made.live(35)
    assert (states(heard)[:2], errors(heard)) == ([3, 2], [0, improv.NOT_JOINED])
    assert made.world.live(lambda: made.world.is_at("gateway.local"), 60)
    assert made.world.board.joined == "attic" and "place" not in made.world.settings()


def test_device_with_a_radio_that_fails_with_these_settings_goes_on(desk: Desks, seed: int) -> None:
    made = desk(seed, ATTIC)
    assert made.world.live(lambda: made.world.is_at("gateway.local"), 30)
    made.tell("faulty", "x")
    assert errors(made.live(3)) == [0, improv.NOT_JOINED]
    assert made.world.live(lambda: made.world.is_at("gateway.local"), 60) and made.world.cuts == 0


def test_device_that_has_a_wifi_answers_that_it_is_joined_and_takes_another(desk: Desks, seed: int) -> None:
    made = desk(seed, ATTIC, port=[{"host": "gateway.local"}, {"host": "second.local"}])
    assert made.world.live(lambda: made.world.is_at("gateway.local"), 30)
    made.ask(improv.GET_STATE)
    heard = made.live()
    assert (states(heard), results(heard)) == ([4], [(2, [])])
    made.tell("cellar", CELLAR["password"])
    assert states(made.live(5)) == [3, 4]
    assert made.world.live(lambda: made.world.is_at("second.local"), 60)
    made.world.reset()
    assert made.world.live(lambda: made.world.is_at("second.local"), 60)


def test_settings_come_while_others_are_tried_or_a_move_is_on_trial(desk: Desks, seed: int) -> None:
    made = desk(seed)
    made.tell("nowhere", "x")
    made.live(1)
    made.tell("attic", ATTIC["password"])
    made.ask(improv.GET_NETWORKS)
    assert errors(made.live(1)) == [0, improv.FAILED, 0, improv.FAILED]
    moving = desk(seed, ATTIC)
    moving.world.settle()
    moving.world.command(command="move", deadline_s=600, network={"ssid": "nowhere", "password": "x"})
    moving.world.live(lambda: moving.world.starts == 2, 60)
    moving.tell("attic", ATTIC["password"])
    assert errors(moving.live(1)) == [0, improv.FAILED]


def test_move_comes_after_settings_and_settings_after_a_move(desk: Desks, seed: int) -> None:
    made = desk(seed)
    made.tell("attic", ATTIC["password"])
    made.live(5)
    made.world.settle()
    made.world.command(command="move", deadline_s=60, network=CELLAR, port={"host": "second.local"})
    assert made.world.live(lambda: made.world.is_at("second.local") and made.world.answers("second.local"), 90)
    made.tell("attic", ATTIC["password"])
    assert states(made.live(5)) == [3, 4]
    made.world.brokers["gateway.local"] = made.world.brokers["second.local"]
    made.world.board.networks["attic"] = {"second.local"}
    made.world.reset()
    assert made.world.live(lambda: made.world.is_at("second.local"), 60) and made.world.board.joined == "attic"


def test_power_cut_at_any_write_leaves_the_old_settings_or_the_new(desk: Desks, seed: int) -> None:
    left = set()
    for cut_at in range(1, 12):
        made = desk(seed + cut_at, ATTIC, port=[{"host": "gateway.local"}, {"host": "second.local"}])
        world = made.world
        world.settle()
        made.tell("cellar", CELLAR["password"])
        world.live(lambda: world.cuts, 8, cut_at)  # noqa: B023 - it is called at once
        world.reset()
        assert world.live(lambda: world.is_at("gateway.local") or world.is_at("second.local"), 60)  # noqa: B023
        left.add(world.board.joined)
        assert world.board.joined == ("cellar" if "place" in world.settings() else "attic")
        made.heard()
    assert left == {"attic", "cellar"}


def test_device_does_what_it_does_while_the_line_has_noise(desk: Desks, seed: int) -> None:
    made = desk(seed, ATTIC)
    for _ in range(50):
        made.say(bytes(made.world.chance.randrange(256) for _ in range(100)).replace(b"\x03", b"") + b"I")
        made.live(0.3)
    assert made.world.live(lambda: made.world.is_at("gateway.local"), 30) and made.world.starts == 1
    made.ask(improv.GET_STATE)
    assert states(made.live(1)) == [improv.PROVISIONED]


def test_ctrl_c_alone_ends_the_program_and_not_as_part_of_a_packet(desk: Desks, seed: int) -> None:
    made = desk(seed)
    made.tell("\r\x03\x03", "\x03\x03\x03\x03\x03\x03\x03\x03")
    assert errors(made.live(1)) == [0]
    made.say(b"IMPROV\x01")
    made.live(0.1)
    made.world.board.now_ms += 10_000  # a call blocks; the rest of the packet is old, and there at once
    made.say(packet(3, b"\x02\x00")[7:])
    assert states(made.live(1)) == [improv.PROVISIONING]
    for typed in (b"\x03", b"\r\x03\r\x01"):
        made = desk(seed)
        made.live(1)
        made.say(typed)
        with pytest.raises(KeyboardInterrupt):
            made.live(1)
    assert sys.stdin.buffer.read(9) == b"\r\x01"  # for the prompt that comes then


def test_packet_that_was_cut_is_forgotten(desk: Desks, seed: int) -> None:
    made = desk(seed)
    made.say(packet(improv.COMMAND, b"\x01\x50" + bytes(80))[:30])
    made.live(1)
    made.ask(improv.GET_STATE)
    assert made.live() == [(improv.ERROR, b"\x00"), (improv.STATE, b"\x02")]


def test_conversation_that_is_over_does_not_hold_the_next_one(desk: Desks, seed: int) -> None:
    made = desk(seed)
    made.say(packet(improv.COMMAND, b"\x02\x00")[:11])
    made.live(100)
    made.ask(improv.GET_STATE)
    assert states(made.live(1)) == [improv.READY]


def test_improv_with_duty_and_on_a_board_without_wifi_is_refused(seed: int) -> None:
    with pytest.raises(ConfigError, match=r"field\.improv is true, expected false with duty"):
        Config({**KEYS, **IMPROV, "interval_ms": 60_000, "duty": {"connect_every": 2, "awake_ms": 5000}})
    world = World(seed, network=None, **IMPROV)
    world.board.has_no_wifi()
    with pytest.raises(ConfigError, match=r"field\.improv is true, expected false: virtual has no Wi-Fi"):
        world.live(lambda: False, 1)
