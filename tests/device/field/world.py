"""A device in virtual time that can be moved: networks, brokers behind them, and power that goes at any moment."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

from tests.device.mqtt.virtual import VirtualBoard, VirtualDevice, VirtualPort
from tests.support.model_broker import ModelBroker
from tools.lab.sim.nor import PowerCut
from wire.codec.packets import Publish
from wire.identity import IDENTITY_PROPERTY, find_user_property
from wire.properties import CORRELATION_DATA

COMMANDS, ANSWERS, STATUS = "commands/garage", "telemetry/garage/answer", "status/garage"
SECRET = "correct horse battery"
ATTIC, CELLAR, LIAR, FAULTY = ({"ssid": name, "password": SECRET} for name in ("attic", "cellar", "liar", "faulty"))
JOIN_MS, LOOK_MS, BOOT_MS = 3_000, 250, 800
OFF_MS = 2_000  # how long the power is away


class VirtualWifi:
    """Joins the first of its networks that is there. A network of `liars` says that it is joined, and leads nowhere."""

    def __init__(self, board: "FieldBoard", networks: list[Any]) -> None:
        self._board = board
        self._networks = [one.ssid for one in networks]
        self._look_ms = self._up_ms = 0
        self.is_up = False
        board.joined = ""

    def advance(self, now_ms: int) -> None:
        if now_ms < self._look_ms:
            return
        self._look_ms = now_ms + LOOK_MS
        if FAULTY["ssid"] in self._networks:
            raise OSError("the radio does not work")
        if not self._up_ms:
            self._up_ms = now_ms + JOIN_MS
        found = [name for name in self._networks if name in self._board.networks]
        self.is_up = bool(found) and now_ms >= self._up_ms
        self._board.joined = found[0] if self.is_up else ""

    def hear(self, now_ms: int) -> None:
        pass

    def next_timer_ms(self) -> int:
        return self._look_ms

    def close(self) -> None:
        self.is_up = False


class FieldBoard(VirtualBoard):
    """Where it stands: `networks` has the names of the Wi-Fi networks, and for each the hosts that it leads to."""

    def __init__(self, sector_count: int = 8, seed: int = 0) -> None:
        super().__init__(sector_count, seed)
        self.networks = {"attic": {"gateway.local", "second.local"}, "cellar": {"second.local"}, "liar": set[str]()}
        self.joined = ""
        self.Network = lambda networks, *_others: VirtualWifi(self, networks)  # type: ignore[assignment]

    def has_no_wifi(self) -> None:
        """It is in a network with both hosts, without a radio."""
        self.Network = None
        self.networks = {"": {"gateway.local", "second.local"}}

    def has_speed(self, baud: int) -> bool:
        return baud >= 300


class FieldDevice(VirtualDevice):
    """One start of the world's device."""

    def __init__(self, world: "World", **change: Any) -> None:
        self._world = world
        super().__init__(world.board, world.brokers["gateway.local"], **change)

    def _make_port(self, config: Any) -> VirtualPort:
        self.port = PlacedPort(self._world, config.host)
        return self.port


class PlacedPort(VirtualPort):
    """A port to a host, which is there only in some networks."""

    def __init__(self, world: "World", host: str) -> None:
        super().__init__(world.brokers.get(host, world.brokers["gateway.local"]))
        self.name = f"{host}:1883"
        self._world, self._host = world, host

    def open(self, now_ms: int) -> None:
        board = self._world.board
        if self._host not in board.networks.get(board.joined, ()):
            raise OSError("no route to host")
        super().open(now_ms)


class World:
    """Everything around a device, and its lives one after the other."""

    def __init__(self, seed: int = 0, **change: Any) -> None:
        self.board = FieldBoard(seed=seed)
        self.chance = Random(seed)
        self.brokers = {"gateway.local": ModelBroker(), "second.local": ModelBroker()}
        wanted = {"network": ATTIC, "commands": COMMANDS, "status": STATUS, **change}
        self.change = {key: value for key, value in wanted.items() if value is not None}
        self.device: FieldDevice | None = None
        self.starts = self.cuts = self.off_ms = 0
        self.reached_ms: list[int] = []  # when a start was first connected to the old place

    def live(self, until: Callable[[], object], seconds: float, cut_at: int | None = None) -> bool:
        """Lets the device run and restart until then, or for so long; the power is cut at that flash operation."""
        end_ms = self.board.now_ms + int(seconds * 1000)
        if cut_at is not None:
            self.board.cut_power_at(cut_at, self.chance)
        while self.board.now_ms < end_ms:
            try:
                if self.device is None:
                    self.starts += 1
                    self.device = FieldDevice(self, **self.change)
                if self.device.run(until, (end_ms - self.board.now_ms) / 1000):
                    return True
            except (PowerCut, OSError):
                self.cuts += 1
                self.reset()
                continue
            if self.device.has_ended:
                self.device = None
                self.board.now_ms += BOOT_MS
        return bool(until())

    def reset(self) -> None:
        """The power goes, and comes back."""
        self.device = None
        self.board.cut_power_at(None, self.chance)
        self.board.now_ms += OFF_MS
        self.off_ms += OFF_MS

    def is_at(self, host: str) -> bool:
        """Whether the device is connected to that broker, and takes commands there."""
        device = self.device
        return (
            device is not None
            and device.port.name == f"{host}:1883"
            and device.port.is_open
            and COMMANDS in self.brokers[host].session.filters
            and device.connects > 0
        )

    def settings(self) -> list[str]:
        """The keys of the settings in the device's store."""
        assert self.device is not None
        return self.device.log.settings.keys()

    def settle(self) -> None:
        """The device is connected for the first time, and has nothing to send."""
        assert self.live(lambda: self.is_at("gateway.local") and self.device and not len(self.device.log), 60)

    def command(self, identifier: int = 7, host: str = "gateway.local", qos: int = 2, **told: Any) -> None:
        """The broker sends a command now."""
        assert self.device is not None
        payload = json.dumps(told).encode()
        self.device.port.command(
            Publish(COMMANDS, payload, qos, False, False, identifier, {CORRELATION_DATA: b"call %d" % identifier})
        )

    def both(self) -> list[ModelBroker]:
        """The brokers, of the old place and of the new one."""
        return list(self.brokers.values())

    def answers(self, host: str | None = None) -> list[dict[str, Any]]:
        """Each answer that has arrived at a broker, or at any; once, by its identity."""
        brokers = [self.brokers[host]] if host else list(self.brokers.values())
        arrived = [one for broker in brokers for one in broker.arrived if one.topic == ANSWERS]
        unique = {find_user_property(one.properties, IDENTITY_PROPERTY): one for one in arrived}
        return [json.loads(one.payload) for one in unique.values()]

    def said(self) -> str:
        """All that the device has told anybody: its log, and every message that has come to a broker."""
        told = [repr(one) for broker in self.brokers.values() for one in broker.publishes]
        return "\n".join(self.board.lines + told)
