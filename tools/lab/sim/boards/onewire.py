"""`onewire` of a simulated board, with the interface of micropython-lib's module, which most boards bring frozen."""

import _onewire

ROM_BITS = 64
CHIPS_MAX = 255  # the most that a search returns


class OneWireError(Exception):
    """No chip is present on the wire."""


class OneWire:
    """The wire at a pin."""

    SEARCH_ROM, MATCH_ROM, SKIP_ROM = 0xF0, 0x55, 0xCC

    def __init__(self, pin) -> None:
        self.pin = pin
        pin.init(pin.OPEN_DRAIN, pin.PULL_UP)

    def reset(self, required: bool = False) -> bool:
        present = _onewire.reset(self.pin)
        if required and not present:
            raise OneWireError
        return present

    def writebyte(self, value: int) -> None:
        _onewire.writebyte(self.pin, value)

    def write(self, content: bytes) -> None:
        for byte in content:
            _onewire.writebyte(self.pin, byte)

    def readinto(self, buffer: bytearray) -> None:
        for place in range(len(buffer)):
            buffer[place] = _onewire.readbyte(self.pin)

    def select_rom(self, rom: bytes) -> None:
        self.reset()
        self.writebyte(self.MATCH_ROM)
        self.write(rom)

    def crc8(self, content: bytes) -> int:
        return _onewire.crc8(content)

    def scan(self) -> list:
        """Returns the ROM codes of all chips as bytearrays; it searches the tree of their bits."""
        found: list = []
        branches: list = [[]]  # the first bits of branches that are not searched yet
        while branches and len(found) < CHIPS_MAX:
            branch = branches.pop()
            rom = self._descend(branch, branches)
            if rom is not None:
                found.append(rom)
        return found

    def _descend(self, path: list, branches: list):
        """Searches along `path`, then takes bit 0 wherever chips differ, and adds the other branch to `branches`."""
        if not self.reset():
            return None
        self.writebyte(self.SEARCH_ROM)
        bits: list = []
        while len(bits) < ROM_BITS:
            bit, complement = _onewire.readbit(self.pin), _onewire.readbit(self.pin)
            if bit and complement:
                return None
            if len(bits) < len(path):
                bit = path[len(bits)]
            elif bit == complement:
                branches.append(bits.copy())
                branches[-1].append(1)
            _onewire.writebit(self.pin, bit)
            bits.append(bit)
        return bytearray([sum([bits[8 * byte + place] << place for place in range(8)]) for byte in range(8)])
