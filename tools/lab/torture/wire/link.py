"""`holdfast lab torture link`: the serial link over lines that lose, corrupt, repeat and invent bytes."""

import time
from typing import Annotated

import typer

from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.lab.sim.virtual_line import Dice, VirtualCable
from tools.lab.torture.wire.stream import Check, piece
from wire.link import Link, LinkData, LinkUp

RUN_MS = 4_000
FAULT_MS = 400


def link(
    size: Annotated[int, typer.Option("--bytes", min=1, help="How many bytes to send, at least.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="The seed of the random errors: the same seed gives the same errors.")] = 1,
    quick: Annotated[bool, quick_option(size=200_000)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Send streams over simulated serial lines that lose, corrupt, repeat and invent bytes.

    The received streams must be the sent streams, and a repaired line must carry data again. Ends with 1 otherwise.
    """
    started = time.monotonic()
    delivered, failure = 0, ""
    try:
        delivered = fuzz(size, seed)
    except ValueError as error:
        failure = str(error)
    more = {"bytes": size, "delivered": delivered}
    judgement = Judgement(not failure, seed, violations=[failure] if failure else [], more=more)
    held = f"{size:,} bytes over bad lines: {delivered:,} delivered, all as they were sent"
    line = f"seed {seed}: {failure}" if failure else held
    end_judged("torture", "link", judgement, time.monotonic() - started, [line], as_json)


class End:
    """A link that sends the known stream for ever and checks what comes; ValueError where that is not the stream."""

    def __init__(self, boot_id: int, now_ms: int) -> None:
        self.link = Link(boot_id)
        self.link.open(now_ms)
        self._check = Check()
        self._sent = 0
        self.received = 0

    def act(self, now_ms: int) -> None:
        while (event := self.link.next_event()) is not None:
            if isinstance(event, LinkUp):
                self._check = Check()
                self._sent = 0
            elif isinstance(event, LinkData):
                self._check.take(event.data)
                self.received += len(event.data)
        if room := self.link.send_room:
            self.link.send(piece(self._sent, room), now_ms)
            self._sent += room


def fuzz(total_bytes: int, seed: int) -> int:
    """Sends at least `total_bytes` bytes over ever other lines; returns how many of them were delivered.

    Raises ValueError where something else was delivered than was sent, or the link stood still on a line that is good
    again.
    """
    dice = Dice(seed)
    carried = delivered = 0
    while carried < total_bytes:
        line = {
            "chunk": 1 + dice.roll(200),
            "latency_ms": dice.roll(60),
            "lose": dice.roll(3) * dice.roll(100),
            "corrupt": dice.roll(3) * (50 + dice.roll(3000)),
            "insert": dice.roll(3) * dice.roll(100),
            "repeat": dice.roll(3) * dice.roll(100),
        }
        cable = VirtualCable(dice, [End(1, 0), End(2, 0)], **line)
        boots = 2
        for _ in range(4):
            cable.run(RUN_MS // 4)
            boots += _disturb(cable, boots)
        _check_alive(cable)
        carried += sum(line.sent_bytes for line in cable.lines)
        delivered += sum(end.received for end in cable.ends)
    return delivered


def _disturb(cable: VirtualCable, boots: int) -> int:
    """A fault of some kind; returns how many ends lost their power."""
    fault = cable.dice.roll(5)
    if fault == 0:
        cable.disturb(cable.dice.roll(FAULT_MS))
    elif fault == 1:
        cable.cut(cable.dice.roll(FAULT_MS))
    elif fault == 2:
        cable.erase(cable.dice.roll(2), cable.dice.roll(FAULT_MS))
    elif fault == 3:
        cable.ends[cable.dice.roll(2)] = End(boots + 1, cable.now_ms)
        return 1
    return 0


def _check_alive(cable: VirtualCable) -> None:
    for line in cable.lines:
        line.faulty = False
    before = [end.received for end in cable.ends]
    cable.run(RUN_MS)
    if any(end.received == received for end, received in zip(cable.ends, before, strict=True)):
        raise ValueError("the link stands still")
