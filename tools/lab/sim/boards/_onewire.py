"""`_onewire` of a simulated board: reads and writes single bits on a wire that every chip can pull low."""

from machine import WIRES


def reset(pin) -> bool:
    """Returns whether a chip is present; a wire that is shorted to ground looks the same."""
    return max([chip.reset() for chip in WIRES.get(pin.number, [])], default=False)


def readbit(pin) -> int:
    return min([chip.read_bit() for chip in WIRES.get(pin.number, [])], default=1)


def writebit(pin, bit: int) -> None:
    for chip in WIRES.get(pin.number, []):
        chip.write_bit(bit)


def readbyte(pin) -> int:
    value = 0
    for place in range(8):
        value |= readbit(pin) << place
    return value


def writebyte(pin, value: int) -> None:
    for place in range(8):
        writebit(pin, value >> place & 1)


def crc8(content: bytes) -> int:
    """Returns the CRC with the polynomial x⁸ + x⁵ + x⁴ + 1, least significant bit first."""
    crc = 0
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x8C if crc & 1 else crc >> 1
    return crc
