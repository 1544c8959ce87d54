"""Two ends of a link that check the streams they get, in virtual time; runs on CPython and on MicroPython."""

from tools.lab.sim.virtual_line import Dice, VirtualCable
from wire.link import Link, LinkData, LinkDown, LinkUp


class Endpoint:
    """A link and an application that sends a stream of its own after each LinkUp, and records what comes."""

    def __init__(self, name: str, boot_id: int, dice: Dice, to_send: int) -> None:
        self.name = name
        self.link = Link(boot_id)
        self.streams: list = []  # one (label, sent, received) a LinkUp
        self._boot_id = boot_id
        self._dice = dice
        self.to_send = to_send
        self._up = False

    def act(self, now_ms: int) -> None:
        """Takes all events, then sends as much as there is room for."""
        while True:
            event = self.link.next_event()
            if event is None:
                break
            if isinstance(event, LinkUp):
                self._up = True
                label = f"<{self.name}:{self._boot_id}:{event.era}>".encode()
                self.streams.append((label, bytearray(), bytearray()))
                self._send(label, now_ms)
            elif isinstance(event, LinkDown):
                self._up = False
            elif isinstance(event, LinkData):
                assert self._up, "data outside LinkUp .. LinkDown"
                self.streams[-1][2].extend(event.data)
        if self._up and self._dice.roll(3):
            left = self.to_send - len(self.streams[-1][1])
            length = min(left, self.link.send_room, 1 + self._dice.roll(900))
            if length > 0:
                self._send(self._dice.bytes(length), now_ms)

    def _send(self, data: bytes, now_ms: int) -> None:
        self.link.send(data, now_ms)
        self.streams[-1][1].extend(data)

    @property
    def all_sent(self) -> bool:
        return self._up and len(self.streams[-1][1]) >= self.to_send


class World(VirtualCable):
    """Two endpoints that send streams to each other, and lose their power now and then."""

    def __init__(self, seed: int, to_send: int = 4000, **line) -> None:
        self.dice = Dice(seed)
        super().__init__(self.dice, [], **line)
        self.to_send = to_send
        self.boots = 0
        self.ends = [self.boot("a"), self.boot("b")]
        self.gone: list = []  # endpoints that lost their power

    def boot(self, name: str) -> Endpoint:
        self.boots += 1
        endpoint = Endpoint(name, self.boots, self.dice, self.to_send)
        endpoint.link.open(self.now_ms)
        return endpoint

    def restart(self, index: int) -> None:
        """Cuts the power of one side; what is on the line stays there."""
        self.gone.append(self.ends[index])
        self.ends[index] = self.boot(self.ends[index].name)

    def mend(self) -> None:
        for line in self.lines:
            line.faulty = False

    def finish(self, within_ms: int) -> None:
        """Runs until both sides have sent all and received all of it."""
        end_ms = self.now_ms + within_ms
        while not self.finished():
            assert self.now_ms < end_ms, "the link stands still"
            self.step()

    def finished(self) -> bool:
        a, b = self.ends
        if not (a.all_sent and b.all_sent):
            return False
        return a.streams[-1][2] == b.streams[-1][1] and b.streams[-1][2] == a.streams[-1][1]

    def check(self) -> None:
        """Everything received is the beginning of one stream that the other side sent, each stream at most once."""
        endpoints = self.ends + self.gone
        sent = {bytes(s[0]): s[1] for endpoint in endpoints for s in endpoint.streams}
        taken = set()
        for endpoint in endpoints:
            for label, _, received in endpoint.streams:
                if not received:
                    continue
                origin = bytes(received[: received.find(b">") + 1])
                if not origin:
                    continue  # less than a label has come
                assert origin in sent, (label, origin)
                assert origin[1] != label[1], "a side received its own stream"
                assert origin not in taken, (label, origin)
                taken.add(origin)
                assert sent[origin][: len(received)] == received, (label, origin)
