"""All devices with their rhythms: how each stands, and which are of most concern."""

import heapq
from collections.abc import Iterator, Mapping
from itertools import islice

from gateway.loop.pace import Slice
from gateway.page.rhythm import Rhythms
from gateway.page.snapshot import DeviceFacts
from gateway.page.standing import Standing
from gateway.sessions.devices import Device, Devices, Heard

AT_ONCE = 500  # devices that are looked at before other tasks may run
CONCERN = {Standing.ODD: 0, Standing.UNKNOWN: 1, Standing.FINE: 2}


class Roster:
    """The devices of a gateway.

    Args:
        devices: the registry.
    """

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._rhythms = Rhythms()

    def tick(self) -> None:
        """Notes which devices have sent messages since the last call, and forgets devices that are gone."""
        self._rhythms.look(self._devices.heard)
        self._rhythms.forget(self._devices.heard)

    def hear(self, client_id: str, heard: Heard) -> None:
        """Notes that a device has sent a message, as ``tick`` does for all."""
        self._rhythms.look({client_id: heard})

    async def look(
        self, now_ms: int, neighbours: set[str], most: int
    ) -> tuple[list[DeviceFacts], Mapping[Standing, int], int]:
        """Returns the devices of most concern, how many of all stand how, and how many are connected.

        Devices that are unusually silent come first, then those of unknown rhythm; among them devices that were silent
        for longest. Neighbouring gateways are no devices.
        """
        worst: list[tuple[int, int, str]] = []
        counts, connected = dict.fromkeys(Standing, 0), 0
        slice_ = Slice()
        for some in self._pieces(neighbours):
            concerns = []
            for client_id, device in some:
                standing, heard_ms = self._stand(client_id, now_ms)
                counts[standing] += 1
                connected += device.connected
                concerns.append((CONCERN[standing], heard_ms or device.last_seen_ms, client_id))
            worst = heapq.nsmallest(most, worst + concerns)
            if slice_.is_over:
                await slice_.give_way()
        known = self._devices.all()
        return [self._facts(name, known[name], now_ms) for _, _, name in worst if name in known], counts, connected

    async def all(self, now_ms: int, neighbours: set[str]) -> list[DeviceFacts]:
        """Returns all devices by name."""
        found: list[DeviceFacts] = []
        slice_ = Slice()
        for some in self._pieces(neighbours):
            found += [self._facts(client_id, device, now_ms) for client_id, device in some]
            if slice_.is_over:
                await slice_.give_way()
        found.sort()
        return found

    def _pieces(self, neighbours: set[str]) -> Iterator[list[tuple[str, Device]]]:
        """Yields the devices as they are now, some at a time: they change meanwhile."""
        each = iter(list(self._devices.all().items()))
        while some := list(islice(each, AT_ONCE)):
            yield [one for one in some if one[0] not in neighbours]

    def _stand(self, client_id: str, now_ms: int) -> tuple[Standing, int]:
        rhythm = self._rhythms.get(client_id)
        if rhythm is None:
            return Standing.UNKNOWN, 0
        if not rhythm.usual_s:
            return Standing.UNKNOWN, rhythm.last_ms
        return Standing.ODD if rhythm.is_silent(now_ms) else Standing.FINE, rhythm.last_ms

    def _facts(self, client_id: str, device: Device, now_ms: int) -> DeviceFacts:
        standing, heard_ms = self._stand(client_id, now_ms)
        rhythm = self._rhythms.get(client_id)
        usual_s = rhythm.usual_s if rhythm else 0.0
        return DeviceFacts(client_id, standing, device.connected, heard_ms, device.last_seen_ms, usual_s)
