"""Measures the serial link on a simulated line in virtual time; the figures are the same on every machine."""

from tools.lab.sim.virtual_line import Dice, VirtualCable, VirtualLine
from wire.link import Link, LinkData, LinkDown, LinkUp

STEADY_MS = 500
NOT_WITHIN_MS = 30_000
ERASE_MS, STALL_MS = 400, 60_000
FAULT_MS = (50, 300, 1_000, 5_000)


class End:
    """A link and its application, which always has bytes to send, or never."""

    def __init__(self, boot_id: int, talks: bool) -> None:
        self.link = Link(boot_id)
        self.link.open(0)
        self.received = self.sent = self.streams = 0
        self.talks = talks
        self._up = False

    def act(self, now_ms: int) -> None:
        while (event := self.link.next_event()) is not None:
            if isinstance(event, LinkUp):
                self._up = True
                self.streams += 1
            elif isinstance(event, LinkDown):
                self._up = False
            elif isinstance(event, LinkData):
                self.received += len(event.data)
        if self._up and self.talks and (room := self.link.send_room):
            self.link.send(bytes(room), now_ms)
            self.sent += room


class Cable(VirtualCable):
    """A line whose first end sends, and whose second end sends too if `both`."""

    def __init__(self, seed: int, both: bool = False, **line: int) -> None:
        super().__init__(Dice(seed), [End(1, True), End(2, both)], **line)
        self.run(STEADY_MS)

    def resumed_after_ms(self) -> int:
        """Returns the time until each direction in use has delivered bytes again."""
        started_ms = self.now_ms
        before = [end.received for end in self.ends]
        waiting = {index for index in (0, 1) if self.ends[1 - index].talks}
        while waiting and self.now_ms < started_ms + NOT_WITHIN_MS:
            self.step()
            waiting = {index for index in waiting if self.ends[index].received == before[index]}
        return self.now_ms - started_ms

    def settle(self) -> int:
        """Waits for all sent bytes; returns how many were lost or came twice."""
        for end in self.ends:
            end.talks = False
        self.run(NOT_WITHIN_MS)
        a, b = self.ends
        return abs(a.sent - b.received) + abs(b.sent - a.received)


def share(seed: int, baud: int, size: int, corrupt: int) -> float:
    """Returns the time of `size` bytes on the bare line, divided by their time through the link."""
    bare = VirtualLine(Dice(seed), baud)
    bare.write(bytes(size), 0)
    last_ms = 0
    while (arrival_ms := bare.next_arrival_ms()) is not None:
        last_ms = arrival_ms
        bare.read(arrival_ms)
    cable = Cable(seed, baud=baud, corrupt=corrupt)
    started_ms, before = cable.now_ms, cable.ends[1].received
    while cable.ends[1].received < before + size:
        cable.step()
    return last_ms / (cable.now_ms - started_ms)


def resync_ms(seed: int, runs: int, noise: bool, both: bool) -> int:
    """The longest wait for data once noise, or a cable that was out, is over."""
    longest_ms = 0
    for run in range(runs):
        for fault_ms in FAULT_MS:
            cable = Cable(seed + run, both)
            cable.run(cable.dice.roll(300))
            (cable.disturb if noise else cable.cut)(fault_ms)
            cable.run(fault_ms)
            longest_ms = max(longest_ms, cable.resumed_after_ms())
    return longest_ms


def erase(seed: int, erases: int) -> dict[str, int]:
    """Returns the bytes that are lost while the first end erases its flash again and again, and both ends send."""
    cable = Cable(seed, both=True)
    device = cable.ends[0].link
    for _ in range(erases):
        cable.run(200 + cable.dice.roll(300))
        device.pause(cable.now_ms)
        while not device.quiet:
            cable.step()
        cable.erase(0, ERASE_MS)
        device.resume(cable.now_ms)
    return {"stream bytes lost": cable.settle(), "line bytes lost": cable.lines[1].dropped_bytes}


def stall(seed: int) -> dict[str, int]:
    """Returns what a host costs that reads nothing for a minute while both ends send."""
    cable = Cable(seed, both=True)
    cable.deaf[1] = True
    cable.run(STALL_MS)
    cable.deaf[1] = False
    cable.resumed_after_ms()
    return {"stream bytes lost": cable.settle(), "restarts": sum(end.streams - 1 for end in cable.ends)}
