"""A Maxim DS18B20 on 1-Wire (datasheet 19-7487), bit by bit: ROM search, conversion, scratchpad with its CRC."""

CONVERT, READ_SCRATCHPAD = 0x44, 0xBE
MATCH_ROM, SKIP_ROM, SEARCH_ROM = 0x55, 0xCC, 0xF0
CONVERT_MS = 750
POWER_ON = 85 * 16
ROM_BITS = 64


class Ds18b20:
    """The chip with that serial number (6 bytes) and temperature, in sixteenths of a degree Celsius. `now_ms`
    returns the time."""

    def __init__(self, now_ms, serial: bytes, sixteenths: int) -> None:
        self.rom = _with_crc(b"\x28" + serial)
        self.sixteenths = sixteenths
        self.flipped_bit: int | None = None  # of the scratchpad, on the wire
        self.scratchpad: bytes | None = None  # eight bytes that it sends instead, with their CRC, as copies of it do
        self._now_ms = now_ms
        self.power_on()

    def power_on(self) -> None:
        """The temperature register holds 85 degrees until the first conversion is done."""
        self._register = POWER_ON
        self._ready_ms: int | None = None
        self.reset()

    def reset(self) -> bool:
        self._command = 0
        self._is_chosen = False
        self._written: list = []
        self._output: list = []
        return True

    def write_bit(self, bit: int) -> None:
        self._written.append(bit)
        if self._command == SEARCH_ROM:
            self._follow(bit)
        elif self._command == MATCH_ROM:
            if len(self._written) == ROM_BITS:
                self._is_chosen = self._written == _bits(self.rom)
                self._command, self._written = 0, []
        elif len(self._written) == 8:
            byte = sum([written << place for place, written in enumerate(self._written)])
            self._written = []
            self._obey(byte)

    def read_bit(self) -> int:
        """1 is also what a chip that does not speak leaves on the wire."""
        if self._command == SEARCH_ROM and self._is_chosen:
            self._asked += 1
            return _bits(self.rom)[self._at] ^ (self._asked % 2 == 0)
        return self._output.pop(0) if self._output else 1

    def _follow(self, bit: int) -> None:
        """A chip whose ROM code goes the other way leaves the search."""
        self._is_chosen = self._is_chosen and bit == _bits(self.rom)[self._at]
        self._at += 1
        self._is_chosen = self._is_chosen and self._at < ROM_BITS

    def _obey(self, byte: int) -> None:
        if self._is_chosen and byte == CONVERT:
            self._finish()
            self._ready_ms = self._now_ms() + CONVERT_MS
        elif self._is_chosen and byte == READ_SCRATCHPAD:
            self._output = self._scratchpad()
        elif byte in (MATCH_ROM, SEARCH_ROM):
            self._command = byte
            self._is_chosen = byte == SEARCH_ROM
            self._at = self._asked = 0
        else:
            self._is_chosen = byte == SKIP_ROM

    def _finish(self) -> None:
        if self._ready_ms is not None and self._now_ms() >= self._ready_ms:
            self._register = self.sixteenths
            self._ready_ms = None

    def _scratchpad(self) -> list:
        self._finish()
        low, high = self._register & 0xFF, self._register >> 8 & 0xFF
        content = bytes([low, high, 0x4B, 0x46, 0x7F, 0xFF, 0x10 - low % 16, 0x10])
        bits = _bits(_with_crc(self.scratchpad or content))
        if self.flipped_bit is not None:
            bits[self.flipped_bit] ^= 1
        return bits


class ShortedWire:
    """A data line that touches ground: presence and nothing but zeros, whose CRC is right."""

    def reset(self) -> bool:
        return True

    def write_bit(self, bit: int) -> None:
        pass

    def read_bit(self) -> int:
        return 0


def _bits(content: bytes) -> list:
    return [byte >> place & 1 for byte in content for place in range(8)]


def _with_crc(content: bytes) -> bytes:
    crc = 0
    for bit in _bits(content):
        crc = crc >> 1 ^ (0x8C if (crc ^ bit) & 1 else 0)
    return content + bytes([crc])
