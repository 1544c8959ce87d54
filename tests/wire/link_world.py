"""A simulated serial line between two links, in virtual time; runs on CPython and on MicroPython.

Every random choice comes from one seed, so a failure is replayed by its seed.
"""

from wire.link import Link, LinkData, LinkDown, LinkUp

BYTES_PER_MS = 11.52  # 115,200 baud, ten bits a byte


class Dice:
    """Small random numbers, the same on both VMs (xorshift32)."""

    def __init__(self, seed: int) -> None:
        self._state = seed & 0xFFFFFFFF or 1
        for _ in range(8):
            self.roll(2)

    def roll(self, sides: int) -> int:
        """0 up to sides - 1."""
        x = self._state
        x = (x ^ (x << 13)) & 0xFFFFFFFF
        x ^= x >> 17
        x = (x ^ (x << 5)) & 0xFFFFFFFF
        self._state = x
        return (x >> 4) % sides


class Line:
    """One direction. Each byte takes its time, and bytes keep their order.

    Args:
        chunk: bytes that the far side reads at once.
        latency_ms: random extra delay up to this, of each chunk.
        lose: one in so many chunks is lost; 0 for none.
        corrupt: one in so many bytes gets a flipped bit; 0 for none.
        insert: one in so many chunks is followed by noise; 0 for none.
    """

    def __init__(self, dice, chunk=64, latency_ms=0, lose=0, corrupt=0, insert=0) -> None:
        self.dead_until_ms = 0
        self.faulty = True
        self.sent_bytes = 0
        self._dice = dice
        self._chunk = chunk
        self._latency_ms = latency_ms
        self._lose = lose
        self._corrupt = corrupt
        self._insert = insert
        self._free_ms = 0.0
        self._last_arrival_ms = 0
        self._on_the_way: list = []  # (arrival_ms, bytes)
        self._errors_in = self._next_error()

    def write(self, data: bytes, now_ms: int) -> None:
        self._free_ms = max(self._free_ms, now_ms)
        self.sent_bytes += len(data)
        for start in range(0, len(data), self._chunk):
            chunk = data[start : start + self._chunk]
            self._free_ms += len(chunk) / BYTES_PER_MS
            arrival_ms = int(self._free_ms) + 1
            if self._latency_ms:
                arrival_ms += self._dice.roll(self._latency_ms)
            self._last_arrival_ms = max(self._last_arrival_ms, arrival_ms)
            if self._free_ms >= self.dead_until_ms:
                self._on_the_way.append((self._last_arrival_ms, self._spoil(chunk)))

    def next_arrival_ms(self):
        return self._on_the_way[0][0] if self._on_the_way else None

    def read(self, now_ms: int) -> list:
        """The chunks that have arrived."""
        count = 0
        while count < len(self._on_the_way) and self._on_the_way[count][0] <= now_ms:
            count += 1
        arrived = [chunk for _, chunk in self._on_the_way[:count]]
        self._on_the_way = self._on_the_way[count:]
        return arrived

    def _spoil(self, chunk: bytes) -> bytes:
        if not self.faulty:
            return chunk
        dice = self._dice
        if self._lose and dice.roll(self._lose) == 0:
            return b""
        while self._corrupt and self._errors_in < len(chunk):
            spoilt = bytearray(chunk)
            spoilt[self._errors_in] ^= 1 << dice.roll(8)
            chunk = bytes(spoilt)
            self._errors_in += self._next_error()
        self._errors_in -= len(chunk)
        if self._insert and dice.roll(self._insert) == 0:
            chunk += bytes([dice.roll(256) for _ in range(dice.roll(40))])
        return chunk

    def _next_error(self) -> int:
        return 1 + self._dice.roll(2 * self._corrupt) if self._corrupt else 0


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
                self._send(bytes([self._dice.roll(256) for _ in range(length)]), now_ms)

    def _send(self, data: bytes, now_ms: int) -> None:
        self.link.send(data, now_ms)
        self.streams[-1][1].extend(data)

    @property
    def all_sent(self) -> bool:
        return self._up and len(self.streams[-1][1]) >= self.to_send


class World:
    """Two endpoints, two lines, one clock."""

    def __init__(self, seed: int, to_send: int = 4000, **line) -> None:
        self.dice = Dice(seed)
        self.now_ms = 1000
        self.to_send = to_send
        self.boots = 0
        self.lines = (Line(self.dice, **line), Line(self.dice, **line))
        self.sides = [self.boot("a"), self.boot("b")]
        self.deaf = [False, False]  # sides whose host does nothing: bytes for them wait
        self.gone: list = []  # endpoints that lost their power

    def boot(self, name: str) -> Endpoint:
        self.boots += 1
        endpoint = Endpoint(name, self.boots, self.dice, self.to_send)
        endpoint.link.open(self.now_ms)
        return endpoint

    def restart(self, index: int) -> None:
        """Cuts the power of one side; what is on the line stays there."""
        self.gone.append(self.sides[index])
        self.sides[index] = self.boot(self.sides[index].name)

    def cut(self, duration_ms: int) -> None:
        for line in self.lines:
            line.dead_until_ms = self.now_ms + duration_ms

    def mend(self) -> None:
        for line in self.lines:
            line.faulty = False

    def step(self, end_ms=None) -> None:
        """Lets both sides write, then goes to the next moment at which something happens, `end_ms` at the latest."""
        moments = []
        for index in (0, 1):
            side, line = self.sides[index], self.lines[index]
            if not self.deaf[index]:
                side.act(self.now_ms)
                data = side.link.data_to_send()
                if data:
                    line.write(data, self.now_ms)
                moments.append(side.link.next_timer_ms())
            if not self.deaf[1 - index]:
                moments.append(line.next_arrival_ms())
        moments.append(end_ms)
        known = [moment for moment in moments if moment is not None]
        self.now_ms = max(self.now_ms + 1, min(known)) if known else self.now_ms + 1
        for index in (0, 1):
            if self.deaf[index]:
                continue
            link = self.sides[index].link
            for chunk in self.lines[1 - index].read(self.now_ms):
                link.receive_data(chunk, self.now_ms)
            link.handle_timer(self.now_ms)

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.step(end_ms)

    def finish(self, within_ms: int) -> None:
        """Runs until both sides have sent all and received all of it."""
        end_ms = self.now_ms + within_ms
        while not self.finished():
            assert self.now_ms < end_ms, "the link stands still"
            self.step()

    def finished(self) -> bool:
        a, b = self.sides
        if not (a.all_sent and b.all_sent):
            return False
        return a.streams[-1][2] == b.streams[-1][1] and b.streams[-1][2] == a.streams[-1][1]

    def check(self) -> None:
        """Everything received is the beginning of one stream that the other side sent, each stream at most once."""
        endpoints = self.sides + self.gone
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
