"""DS18B20 on 1-Wire (Maxim 19-7487), with MicroPython's own driver, which checks the CRC."""

import binascii

from device.sensors.buses import read_pin
from device.sensors.driver import Driver, SensorFailed

CONVERT_MS = 800  # a conversion takes 750 ms at 12 bits; the rest is for starting other chips on the wire
POWER_ON = 85  # degrees; the value of a chip that has not converted since power-on
CONFIGURATION = 4  # in the scratchpad: its lowest five bits are always 1
CONFIGURATION_ONES = 0x1F
ROM_DIGITS = 16
IDLE = 0xFF  # read from a wire on which all chips wait for a command


class Ds18b20(Driver):
    """One of the thermometers on a wire.

    A temperature of exactly 85 degrees is refused: it cannot be distinguished from the value of a chip that lost its
    power between the start of its conversion and the reading.

    Args:
        pin: the number of the wire's pin.
        rom: the chip's ROM code in hexadecimal; None if it is the only chip on the wire.
    """

    METRICS = ("temperature",)
    RANGES = {"temperature": (-55, 125)}

    @staticmethod
    def read(section) -> tuple:
        pin, rom = read_pin(section), section.text_or_null("rom")
        if rom is not None and (len(rom) != ROM_DIGITS or any(digit not in "0123456789abcdef" for digit in rom)):
            raise section.wrong("rom", rom, "null or a ROM code of 16 hexadecimal digits, 0 to 9 and a to f")
        return pin, rom

    def __init__(self, pin: int, rom: str | None) -> None:
        from ds18x20 import DS18X20
        from machine import Pin
        from onewire import OneWire

        wire = OneWire(Pin(pin))
        idle = bytearray(1)
        if wire.reset():
            wire.readinto(idle)
            if idle[0] != IDLE:  # a search on a shorted wire would find chips without end
                raise SensorFailed("the wire is shorted")
        self._wire = DS18X20(wire)
        found = sorted([binascii.hexlify(code).decode() for code in self._wire.scan()])
        if not found:
            raise SensorFailed("nothing on the wire")
        if rom is None and len(found) > 1:
            raise SensorFailed(f"rom must be one of {', '.join(found)}")
        if rom is not None and rom not in found:
            raise SensorFailed(f"not on the wire; there is {', '.join(found)}")
        self._rom = bytearray(binascii.unhexlify(rom or found[0]))

    def start(self) -> int:
        self._wire.convert_temp()
        return CONVERT_MS

    def sample(self) -> list:
        temperature = self._wire.read_temp(self._rom)
        if self._wire.buf[CONFIGURATION] & CONFIGURATION_ONES != CONFIGURATION_ONES:
            raise SensorFailed("the wire is shorted")
        if temperature == POWER_ON:
            raise SensorFailed("it lost its power and has not measured")
        return [("temperature", "Cel", temperature)]
