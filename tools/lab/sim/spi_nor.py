"""A simulated W25Q flash chip, as its SPI pins see it. In the portable dialect: boards simulated on the real
MicroPython VM have one as well.

It keeps a NOR chip's rules: a program clears bits and never sets one, and wraps inside its page; programs and erases
need the write-enable latch, which they reset; while the chip is busy it answers only with its status; it ignores
programs and erases of protected sectors, and they leave the latch. A power cut leaves a page or a sector torn.
"""

PAGE_SIZE = 256
SECTOR_SIZE = 4096
PROGRAM_US = 700  # typical times of a W25Q
ERASE_US = 45_000
BYTE_US = 1  # at 8 MHz
BUSY = 0x01
WRITE_ENABLED = 0x02
PROGRAMS = {0x02: 3, 0x12: 4}  # opcode: address bytes
ERASES = {0x20: 3, 0x21: 4}
READS = {0x03: 3, 0x13: 4}


class PowerCut(Exception):
    """The power went during a program or an erase; the chip comes back with `restart`."""


class W25Q:
    """A chip with the given JEDEC ID; `size` in bytes is what it really has, all erased.

    `cut_at` counts programs and erases from 1: that one is torn and raises PowerCut. `before_change` is called with the
    command of each. The counters `programs`, `erases` and `rewrites` (programs over bytes that were not erased) and the
    clock `time_us` go on until one sets them back.
    """

    def __init__(self, jedec_id: bytes = b"\xef\x30\x11", size: int = 1 << 17, seed: int = 0) -> None:
        self.jedec_id = jedec_id
        self.image = bytearray(b"\xff" * size)
        self.protected: list[int] = []  # sectors
        self.is_stuck = False  # never ends what it begins
        self.is_locked = False  # takes no write enable
        self.cut_at = 0
        self.operations = self.programs = self.erases = self.rewrites = 0
        self.time_us = 0
        self.before_change = lambda command: None
        self._random = seed | 1
        self.restart()

    def restart(self) -> None:
        """Power on: what was going on is forgotten."""
        self.is_selected = False
        self._busy_until_us = 0
        self._is_enabled = False
        self._input = bytearray()
        self._sent = 0

    def wait_us(self, microseconds: int) -> None:
        """Time passes."""
        self.time_us += microseconds

    def select(self, level: int) -> None:
        """The chip-select pin: low begins a command, high ends and does it."""
        if self.is_selected and level:
            self.is_selected = False
            self._do(bytes(self._input))
        elif not level:
            self.is_selected = True
            self._input = bytearray()
            self._sent = 0

    def take(self, content: bytes) -> None:
        """Bytes from the bus."""
        self.time_us += len(content) * BYTE_US
        self._input.extend(content)

    def give(self, buffer: bytearray) -> None:
        """The bus takes bytes; a chip that does not answer leaves the line high."""
        self.time_us += len(buffer) * BYTE_US
        buffer[:] = b"\xff" * len(buffer)
        opcode = self._input[0] if self._input else 0
        if opcode == 0x05:
            buffer[:] = bytes((self._status(),)) * len(buffer)
        elif self._is_busy():
            return
        elif opcode == 0x9F:
            for at in range(len(buffer)):
                buffer[at] = self.jedec_id[(self._sent + at) % 3]
        elif opcode in READS and len(self._input) == 1 + READS[opcode]:
            start = self._address(self._input, READS[opcode]) + self._sent
            for at in range(len(buffer)):
                buffer[at] = self.image[(start + at) % len(self.image)]
        self._sent += len(buffer)

    def _is_busy(self) -> bool:
        return (self.is_stuck and self._busy_until_us > 0) or self.time_us < self._busy_until_us

    def _status(self) -> int:
        if self._is_busy():
            return BUSY | WRITE_ENABLED
        if self._busy_until_us:
            self._busy_until_us = 0
            self._is_enabled = False
        return WRITE_ENABLED if self._is_enabled else 0

    def _do(self, command: bytes) -> None:
        """The command that the chip-select pin ended."""
        if not command or self._status() & BUSY:
            return
        opcode = command[0]
        if opcode == 0x06:
            self._is_enabled = not self.is_locked
        elif not self._is_enabled:
            return
        if opcode in PROGRAMS or opcode in ERASES:
            self.before_change(command)
        if opcode in PROGRAMS and len(command) > 1 + PROGRAMS[opcode]:
            self._program(self._address(command, PROGRAMS[opcode]), command[1 + PROGRAMS[opcode] :])
        elif opcode in ERASES and len(command) == 1 + ERASES[opcode]:
            self._erase(self._address(command, ERASES[opcode]) // SECTOR_SIZE)

    def _address(self, command: bytes | bytearray, count: int) -> int:
        """An address beyond the chip's end counts from its start again, and three bytes reach 16 MiB."""
        return int.from_bytes(command[1 : 1 + count], "big") % len(self.image)

    def _program(self, address: int, content: bytes) -> None:
        if address // SECTOR_SIZE in self.protected:
            return
        self.programs += 1
        is_cut = self._begin(PROGRAM_US)
        page = address // PAGE_SIZE * PAGE_SIZE
        for at, byte in enumerate(content):
            place = page + (address + at) % PAGE_SIZE
            self.rewrites += self.image[place] != 0xFF
            self.image[place] &= byte | (self._noise() if is_cut else 0)
        if is_cut:
            raise PowerCut

    def _erase(self, sector: int) -> None:
        if sector in self.protected:
            return
        self.erases += 1
        is_cut = self._begin(ERASE_US)
        start = sector * SECTOR_SIZE
        if not is_cut:
            self.image[start : start + SECTOR_SIZE] = b"\xff" * SECTOR_SIZE
            return
        for at in range(start, start + SECTOR_SIZE, PAGE_SIZE):  # page by page: done, begun, or not yet
            stage = self._noise() % 3
            for place in range(at, at + PAGE_SIZE):
                self.image[place] |= (0xFF, self._noise(), 0)[stage]
        raise PowerCut

    def _begin(self, duration_us: int) -> bool:
        """A program or an erase begins; True when the power goes in it."""
        self.operations += 1
        self._busy_until_us = self.time_us + duration_us
        return self.operations == self.cut_at

    def _noise(self) -> int:
        """A random byte, of the seed alone (xorshift: MicroPython has no generator of one's own)."""
        state = self._random
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        self._random = state
        return state >> 8 & 0xFF
