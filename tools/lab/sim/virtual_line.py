"""Serial lines and the links at their ends in virtual time; runs on CPython and on MicroPython.

Every random choice comes from one seed, so a failure is replayed by its seed.
"""

from wire.link import Link

BITS_PER_BYTE = 10  # 8N1: a start bit, eight of data, a stop bit
TRANSMIT_BUFFER_BYTES = 64  # as a UART's; a side sends its next frame when at most so much waits
DRIVER_BUFFER_BYTES = 4096  # bytes that wait for a side that does not read; more are lost, as in Linux's drivers


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

    def bytes(self, length: int) -> bytes:
        return bytes([self.roll(256) for _ in range(length)])


class VirtualLine:
    """One direction. Each byte takes its time, and bytes keep their order.

    Args:
        baud: bits a second, ten a byte.
        chunk: bytes that the far side reads at once.
        latency_ms: random extra delay up to this, of each chunk.
        lose: one chunk in `lose` is lost; 0 for none.
        corrupt: one byte in `corrupt` gets a flipped bit; 0 for none.
        insert: noise follows one chunk in `insert`; 0 for none.
        repeat: one chunk in `repeat` comes twice; 0 for none.
    """

    def __init__(
        self,
        dice: Dice,
        baud: int = 115_200,
        chunk: int = 64,
        latency_ms: int = 0,
        lose: int = 0,
        corrupt: int = 0,
        insert: int = 0,
        repeat: int = 0,
    ) -> None:
        self.faulty = True
        self.sent_bytes = 0
        self.dropped_bytes = 0  # by a cut, or by a driver whose buffer was full
        self._dice = dice
        self._bytes_per_ms = baud / BITS_PER_BYTE / 1000
        self._chunk = chunk
        self._latency_ms = latency_ms
        self._lose = lose
        self._corrupt = corrupt
        self._insert = insert
        self._repeat = repeat
        self._fault = (0, 0, False)  # from, until (in ms), and whether noise comes in place of what was sent
        self._free_ms = 0.0
        self._last_arrival_ms = 0
        self._on_the_way: list = []  # (arrival_ms, bytes)
        self._errors_in = self._next_error()

    def write(self, data: bytes, now_ms: int) -> None:
        self._free_ms = max(self._free_ms, now_ms)
        self.sent_bytes += len(data)
        for start in range(0, len(data), self._chunk):
            chunk = data[start : start + self._chunk]
            self._free_ms += len(chunk) / self._bytes_per_ms
            arrival_ms = int(self._free_ms) + 1
            if self._latency_ms:
                arrival_ms += self._dice.roll(self._latency_ms)
            self._last_arrival_ms = max(self._last_arrival_ms, arrival_ms)
            self._on_the_way.append((self._last_arrival_ms, self._spoil(chunk)))

    def ready_ms(self) -> int:
        """When it takes the next bytes."""
        return int(self._free_ms - TRANSMIT_BUFFER_BYTES / self._bytes_per_ms)

    def cut(self, now_ms: int, duration_ms: int) -> None:
        """Nothing arrives for so long; what was to arrive is lost."""
        self._fault = (now_ms, now_ms + duration_ms, False)

    def disturb(self, now_ms: int, duration_ms: int) -> None:
        """Noise arrives for so long in place of what was sent."""
        self._fault = (now_ms, now_ms + duration_ms, True)

    def next_arrival_ms(self) -> int | None:
        return self._on_the_way[0][0] if self._on_the_way else None

    def read(self, now_ms: int) -> list:
        """The chunks that have arrived, as far as the driver's buffer has kept them."""
        arrived, length = [], 0
        while self._on_the_way and self._on_the_way[0][0] <= now_ms:
            arrival_ms, chunk = self._on_the_way.pop(0)
            begin_ms, end_ms, noise = self._fault
            if begin_ms < arrival_ms <= end_ms:
                if not noise:
                    self.dropped_bytes += len(chunk)
                chunk = self._dice.bytes(len(chunk)) if noise else b""
            length += len(chunk)
            if length <= DRIVER_BUFFER_BYTES:
                arrived.append(chunk)
            else:
                self.dropped_bytes += len(chunk)
        return arrived

    def _spoil(self, chunk: bytes) -> bytes:
        if not self.faulty:
            return chunk
        dice = self._dice
        if self._lose and dice.roll(self._lose) == 0:
            return b""
        while self._corrupt and self._errors_in < len(chunk):
            changed = bytearray(chunk)
            changed[self._errors_in] ^= 1 << dice.roll(8)
            chunk = bytes(changed)
            self._errors_in += self._next_error()
        self._errors_in -= len(chunk)
        if self._insert and dice.roll(self._insert) == 0:
            chunk += dice.bytes(dice.roll(40))
        if self._repeat and dice.roll(self._repeat) == 0:
            chunk += chunk
        return chunk

    def _next_error(self) -> int:
        return 1 + self._dice.roll(2 * self._corrupt) if self._corrupt else 0


class VirtualCable:
    """A line in each direction, an end at each side, and one clock. `ends`: two, each with a `link`, and with
    `act(now_ms)` that takes the link's events and sends. `line`: of each direction, as `VirtualLine` takes it."""

    def __init__(self, dice: Dice, ends: list, **line: int) -> None:
        self.now_ms = 1000
        self.dice = dice
        self.ends = ends  # may be replaced, as a device that restarts
        # The first carries what the first end sends.
        self.lines = (VirtualLine(dice, **line), VirtualLine(dice, **line))
        self.deaf = [False, False]  # ends whose host does nothing: bytes for them wait

    def cut(self, duration_ms: int) -> None:
        for line in self.lines:
            line.cut(self.now_ms, duration_ms)

    def disturb(self, duration_ms: int) -> None:
        for line in self.lines:
            line.disturb(self.now_ms, duration_ms)

    def erase(self, index: int, duration_ms: int) -> None:
        """One end erases flash: it does nothing, and what arrives for it is lost."""
        self.lines[1 - index].cut(self.now_ms, duration_ms)
        self.deaf[index] = True
        self.run(duration_ms)
        self.deaf[index] = False

    def step(self, end_ms: int | None = None) -> None:
        """Lets both ends write, then goes to the next moment at which something happens, `end_ms` at the latest."""
        moments = [end_ms]
        for index in (0, 1):
            end, line = self.ends[index], self.lines[index]
            if not self.deaf[index]:
                end.act(self.now_ms)
                self._write(end.link, line)
                moments.append(end.link.next_timer_ms() if line.ready_ms() <= self.now_ms else line.ready_ms())
            if not self.deaf[1 - index]:
                moments.append(line.next_arrival_ms())
        known = [moment for moment in moments if moment is not None]
        self.now_ms = max(self.now_ms + 1, min(known)) if known else self.now_ms + 1
        for index in (0, 1):
            if self.deaf[index]:
                continue
            link = self.ends[index].link
            for chunk in self.lines[1 - index].read(self.now_ms):
                link.receive_data(chunk, self.now_ms)
            if self.lines[index].ready_ms() <= self.now_ms:
                link.handle_timer(self.now_ms)

    def _write(self, link: Link, line: VirtualLine) -> None:
        while line.ready_ms() <= self.now_ms and (data := link.data_to_send()):
            line.write(data, self.now_ms)

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.step(end_ms)
