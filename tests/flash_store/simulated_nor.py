"""NOR flash in RAM that records every operation, so that a power cut can be tried at each of them."""

import random

from flash_store.errors import DeviceFailed

Operation = tuple[str, int, int, bytes]  # "program" or "erase", sector, offset, what to program


class SimulatedNor:
    """A block device in RAM. `operations` tells what was done to it; `violations` counts granules programmed twice."""

    def __init__(self, sector_size: int, sector_count: int, granule: int, image: bytes | None = None) -> None:
        self.sector_size, self.sector_count, self.granule = sector_size, sector_count, granule
        self.image = bytearray(image or b"\xff" * sector_size * sector_count)
        self.programmed = {
            at for at in range(0, len(self.image), granule) if self.image[at : at + granule].strip(b"\xff")
        }
        self.operations: list[Operation] = []
        self.violations = 0
        self.bytes_read = 0
        self.erase_counts = [0] * sector_count
        self.bad_sectors: set[int] = set()  # programs have no effect there
        self.after_operation = lambda: None

    def readblocks(self, block: int, buffer, offset: int = 0) -> None:
        start = block * self.sector_size + offset
        buffer[:] = self.image[start : start + len(buffer)]
        self.bytes_read += len(buffer)

    def writeblocks(self, block: int, buffer, offset: int = 0) -> None:
        if offset % self.granule or len(buffer) % self.granule or offset + len(buffer) > self.sector_size:
            raise DeviceFailed("not whole granules")
        self.operations.append(("program", block, offset, bytes(buffer)))
        if block in self.bad_sectors:
            self.after_operation()
            return
        start = block * self.sector_size + offset
        touched = set(range(start, start + len(buffer), self.granule))
        self.violations += len(touched & self.programmed)
        self.programmed |= touched
        for at, byte in enumerate(buffer):
            self.image[start + at] &= byte
        self.after_operation()

    def ioctl(self, operation: int, argument: int) -> int:
        if operation == 4:
            return self.sector_count
        if operation == 5:
            return self.sector_size
        if operation == 6:
            self.operations.append(("erase", argument, 0, b""))
            self.erase_counts[argument] += 1
            start = argument * self.sector_size
            self.image[start : start + self.sector_size] = b"\xff" * self.sector_size
            self.programmed -= set(range(start, start + self.sector_size, self.granule))
            self.after_operation()
        return 0

    def copy(self) -> "SimulatedNor":
        return SimulatedNor(self.sector_size, self.sector_count, self.granule, bytes(self.image))

    def redo(self, operation: Operation) -> None:
        """Do a recorded operation."""
        what, block, offset, content = operation
        if what == "erase":
            self.ioctl(6, block)
        else:
            self.writeblocks(block, content, offset)

    def torn(self, operation: Operation, rng: random.Random) -> "SimulatedNor":
        """The flash after a power cut inside this operation: a prefix of it, then random bits, then nothing."""
        what, block, offset, content = operation
        image = bytearray(self.image)
        start = block * self.sector_size + offset
        if what == "program":
            cut = rng.randrange(len(content))
            image[start : start + cut] = content[:cut]
            for at in range(cut, min(len(content), cut // self.granule * self.granule + self.granule)):
                image[start + at] &= content[at] | rng.getrandbits(8)
        else:
            for at in range(start, start + self.sector_size, self.granule):
                # Often the headers survive: what then looks like a whole sector is one with holes.
                if at - start > 64 or rng.random() < 0.3:
                    content = b"\xff" * self.granule
                    noise = bytes(rng.getrandbits(8) | image[at + i] for i in range(self.granule))
                    kept = bytes(image[at : at + self.granule])
                    image[at : at + self.granule] = rng.choice((content, noise, kept, kept))
        return SimulatedNor(self.sector_size, self.sector_count, self.granule, bytes(image))
