"""`ds18x20` of a simulated board, with the interface of micropython-lib's module, which most boards bring frozen."""

CONVERT, READ_SCRATCHPAD = 0x44, 0xBE
FAMILIES = (0x10, 0x22, 0x28)


class DS18X20:
    """The thermometers on a wire."""

    def __init__(self, onewire) -> None:
        self.ow = onewire
        self.buf = bytearray(9)

    def scan(self) -> list:
        return [rom for rom in self.ow.scan() if rom[0] in FAMILIES]

    def convert_temp(self) -> None:
        self.ow.reset(True)
        self.ow.writebyte(self.ow.SKIP_ROM)
        self.ow.writebyte(CONVERT)

    def read_scratch(self, rom: bytes) -> bytearray:
        self.ow.reset(True)
        self.ow.select_rom(rom)
        self.ow.writebyte(READ_SCRATCHPAD)
        self.ow.readinto(self.buf)
        if self.ow.crc8(self.buf):
            raise Exception("CRC error")
        return self.buf

    def read_temp(self, rom: bytes) -> float:
        """Degrees Celsius of a DS18B20."""
        scratchpad = self.read_scratch(rom)
        raw = scratchpad[1] << 8 | scratchpad[0]
        return (raw - 0x10000 if raw & 0x8000 else raw) / 16
