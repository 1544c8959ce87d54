"""Which values are read with one request: those of one table that lie beside each other."""

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.config.connectors import ValueConfig, registers_of
from gateway.connectors.modbus.request import BITS_MOST, READ, Read, Table
from gateway.connectors.modbus.value import reading_of
from gateway.connectors.reading import Reading, Unreadable


@dataclass(frozen=True, slots=True)
class Block:
    """One request and the values in its answer."""

    request: Read
    values: tuple[ValueConfig, ...]

    def registers_of(self, value: ValueConfig, found: list[int]) -> list[int]:
        """Returns the registers, or bits, of one value among those of the answer."""
        start = value.address - self.request.address
        return found[start : start + registers_of(value)]

    def readings(self, found: list[int]) -> list[Reading]:
        """Returns the readings of an answer. What is no value is a reading ``NAME.error``, a text."""
        readings = []
        for value in self.values:
            try:
                readings.append(reading_of(value, self.registers_of(value, found)))
            except Unreadable as error:
                readings.append(Reading(f"{value.name}.error", str(error)))
        return readings


def blocks_of(values: Iterable[ValueConfig], *, gap: int, most: int) -> list[Block]:
    """Returns the fewest blocks, in order, that read all values.

    Args:
        values: the values.
        gap: the most registers or bits between two values that are read along, though no value has them.
        most: the most registers of a block.
    """
    blocks = []
    by_table: dict[Table, list[ValueConfig]] = {}
    for value in values:
        by_table.setdefault(value.table, []).append(value)
    for table in READ:
        largest = BITS_MOST if table in ("coil", "discrete") else most
        taken: list[ValueConfig] = []
        start = end = 0
        for value in sorted(by_table.get(table, []), key=lambda one: (one.address, registers_of(one))):
            value_end = value.address + registers_of(value)
            if taken and (value.address > end + gap or max(end, value_end) - start > largest):
                blocks.append(Block(Read(table, start, end - start), tuple(taken)))
                taken = []
            if not taken:
                start, end = value.address, value_end
            taken.append(value)
            end = max(end, value_end)
        if taken:
            blocks.append(Block(Read(table, start, end - start), tuple(taken)))
    return blocks


def probe_of(blocks: Iterable[Block]) -> Read:
    """Returns a request whose answer cannot be taken for that of a block.

    After a unit was silent, its answer may still come. It is known by its size alone, so the next request asks for
    another number of registers: an answer to that shows that nothing of before is on its way any more.
    """
    requests = [block.request for block in blocks]
    first = requests[0]
    taken = {one.answer_size for one in requests if one.function == first.function}
    counts = [*range(first.count - 1, 0, -1), *range(first.count + 1, first.count + 8 * len(taken) + 9)]
    last = 0x10000 - first.address
    for count in counts:
        found = Read(first.table, first.address, count)
        if found.answer_size not in taken and count <= last:
            return found
    return Read("coil" if first.table != "coil" else "holding", first.address, 1)
