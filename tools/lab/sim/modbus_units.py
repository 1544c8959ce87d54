"""Units that answer Modbus in RTU mode at the end of a line, with the faults that real ones have.

A register's number is made of the unit's address and its own, so that a value tells from where it came.
"""

import asyncio
import contextlib
import os
import tty
from collections.abc import Callable
from dataclasses import dataclass, field

FUNCTIONS = {3: "holding", 4: "input"}


def crc_of(data: bytes) -> bytes:
    """Returns the CRC-16 of a frame, the low byte first; bit by bit, unlike the gateway's own."""
    crc = 0xFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xA001 if crc & 1 else 0)
    return crc.to_bytes(2, "little")


def register_of(unit: int, address: int) -> int:
    """Returns what is in a register of a unit."""
    return (unit << 8 | address & 0xFF) & 0xFFFF


@dataclass(slots=True)
class SimulatedUnit:
    """One unit.

    ``is_dead``: it does not answer. ``late_s`` is after how many seconds it answers, request by request in their order.
    ``answers_as`` is the address in its answers. ``exception`` is the number of the exception that it answers.
    ``repeats_as``: behind each answer comes the same one from this address. ``cut`` is how many bytes of each answer
    are missing. ``written`` has the registers that were set, ``writes`` counts the requests that set any. ``free_s`` is
    when it has sent what it was asked before.
    """

    address: int
    is_dead: bool = False
    late_s: float = 0.0
    answers_as: int | None = None
    exception: int | None = None
    repeats_as: int | None = None
    cut: int = 0
    asked: int = 0
    free_s: float = 0.0
    writes: int = 0
    written: dict[int, int] = field(default_factory=dict)

    def answer(self, request: bytes) -> bytes:
        """Returns the answer to a request, with its checksum."""
        self.asked += 1
        function, address, count = request[1], int.from_bytes(request[2:4], "big"), int.from_bytes(request[4:6], "big")
        if self.exception is not None:
            pdu = bytes((function | 0x80, self.exception))
        elif function in FUNCTIONS:
            asked = range(address, address + count)
            registers = [self.written.get(one, register_of(self.address, one)) for one in asked]
            pdu = bytes((function, 2 * count)) + b"".join(one.to_bytes(2, "big") for one in registers)
        elif function == 6:
            self.writes += 1
            self.written[address] = count
            pdu = request[1:6]
        elif function == 16:
            self.writes += 1
            data = request[7 : 7 + 2 * count]
            self.written |= {address + at: int.from_bytes(data[2 * at : 2 * at + 2], "big") for at in range(count)}
            pdu = request[1:6]
        else:
            pdu = bytes((function | 0x80, 1))
        body = bytes((self.address if self.answers_as is None else self.answers_as,)) + pdu
        frame = body + crc_of(body)
        if self.repeats_as is not None:
            other = bytes((self.repeats_as,)) + pdu
            frame += other + crc_of(other)
        return frame[: len(frame) - self.cut]


class SimulatedUnits:
    """Units on one line.

    Args:
        path: the terminal at their end of the line.
        units: the units.
        spoil: changes what goes to the gateway, such as by flipping bits.
        echoes: whether the gateway hears what it sends; with ``garbles_echo``, something else.
    """

    def __init__(
        self,
        path: str,
        units: list[SimulatedUnit],
        spoil: Callable[[bytes], bytes] = bytes,
        *,
        echoes: bool = False,
    ) -> None:
        self.garbles_echo = False
        self._echoes = echoes
        self.units = {unit.address: unit for unit in units}
        self._spoil = spoil
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        tty.setraw(self._descriptor)
        self._buffer = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read)

    def close(self) -> None:
        """Leaves the line."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def send(self, data: bytes) -> None:
        """Sends bytes that no unit would."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._descriptor, self._spoil(data))

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            came = os.read(self._descriptor, 4096)
            self._buffer += came
            if self._echoes:
                self.send(came[:-1] + b"\xff" if self.garbles_echo else came)
        while self._buffer:
            size = 8 if len(self._buffer) < 7 or self._buffer[1] != 16 else 9 + self._buffer[6]
            if len(self._buffer) < size:
                return
            request, self._buffer = self._buffer[:size], self._buffer[size:]
            if crc_of(request[:-2]) != request[-2:]:
                self._buffer = b""
                return
            unit = self.units.get(request[0])
            if unit is None or unit.is_dead:
                continue
            answer = unit.answer(request)
            unit.free_s = max(unit.free_s, self._loop.time() + unit.late_s)
            if unit.free_s > self._loop.time():
                self._loop.call_at(unit.free_s, self.send, answer)
            else:
                self.send(answer)
