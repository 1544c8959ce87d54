"""An ESP32 in its ROM's loader, by esptool as a process."""

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.cli.board.errors import BoardError
from tools.cli.board.process import ToolFailed, run
from tools.cli.board.stores import SECTOR_BYTES

MIB, KIB = 1024 * 1024, 1024
START_S = 45.0  # for a reset into the loader, a few attempts, and the upload of the stub
SLOWEST = 4.0  # times as long as the line needs
WAIT_PER_MIB_S = 90.0  # for erases and programs of the chip at their worst
BITS_PER_BYTE = 10
SIZE_UNITS = {"KB": KIB, "MB": MIB}
CHIP = re.compile(r"Chip type:\s+(ESP[0-9A-Z-]+)")
MAC = re.compile(r"MAC:\s+((?:[0-9a-f]{2}:){5}[0-9a-f]{2})")
SIZE = re.compile(r"Detected flash size:\s+(\d+)(KB|MB)")
MATCHED, DIFFERED = "Verification successful", "Verification failed (digest mismatch)"
WRITTEN = re.compile(r"Writing at 0x[0-9a-f]+.*?([0-9.]+)%")
READ = re.compile(r"\(([0-9.]+) ?%\)|([0-9.]+)%")

Piece = tuple[int, bytes]  # an address on the flash, and the bytes that belong there


@dataclass(frozen=True)
class Chip:
    """What a board's loader says: the kind, as `ESP32` or `ESP32-S3`, the bytes of its flash, and its MAC address."""

    title: str
    flash_size: int
    mac: str = ""


class Loader:
    """The loader at a serial port.

    Every call is a process, which resets the board into its loader. The methods raise BoardError, and Refused for a
    port that cannot be used.

    Args:
        baud: the speed for what is written and read; esptool connects at 115,200 before.
        on_progress: called with a number from 0 to 100 while something is written or read.
    """

    def __init__(
        self, port: str, baud: int, on_progress: Callable[[float], object] = lambda _percent: None, stub: bool = True
    ) -> None:
        self._port, self._baud, self._on_progress = port, baud, on_progress
        self._options = [] if stub else ["--no-stub"]

    def look(self) -> Chip:
        """Asks for the chip and the size of its flash."""
        output = self._run(["flash-id"], 0)
        chip, size, mac = CHIP.search(output), SIZE.search(output), MAC.search(output)
        if chip is None or size is None or mac is None:
            raise BoardError(f"{self._port}: esptool does not say what chip and what flash this board has")
        return Chip(_family(chip[1]), int(size[1]) * SIZE_UNITS[size[2]], mac[1])

    def read(self, address: int, size: int) -> bytes:
        """Reads bytes of the flash."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "read")
            self._run(["read-flash", hex(address), hex(size), str(path)], size)
            content = path.read_bytes()
        if len(content) != size:
            raise BoardError(f"{self._port}: {len(content)} of {size} bytes were read at 0x{address:x}")
        return content

    def compare(self, pieces: Sequence[Piece]) -> list[bool]:
        """Returns for each piece whether its bytes are on the flash: the board tells a hash of what it has there."""
        found: dict[int, bool] = {}
        todo = list(range(len(pieces)))
        while todo:  # esptool takes no two pieces of the same sector at once
            group: list[int] = []
            for number in todo:
                if not any(_share_sectors(pieces[number], pieces[other]) for other in group):
                    group.append(number)
            found |= zip(group, self._compare([pieces[number] for number in group]), strict=True)
            todo = [number for number in todo if number not in found]
        return [found[number] for number in range(len(pieces))]

    def _compare(self, pieces: Sequence[Piece]) -> list[bool]:
        size = sum(len(content) for _, content in pieces)
        with _files(pieces) as words:
            try:
                output = self._run(["verify-flash", *words], 0, busy_bytes=size)
            except ToolFailed as error:
                output = error.output
                if DIFFERED not in output:
                    raise
        found = [MATCHED in line for line in output.splitlines() if MATCHED in line or DIFFERED in line]
        if len(found) != len(pieces):
            raise BoardError(f"{self._port}: esptool compared {len(found)} of {len(pieces)} places")
        return found

    def write(self, pieces: Sequence[Piece]) -> None:
        """Writes pieces in this order; it erases the sectors that they touch, and no others."""
        with _files(pieces) as words:
            size = sum(len(content) for _, content in pieces)
            self._run(["write-flash", *words], size, busy_bytes=size)

    def erase(self, address: int, size: int, starts: bool = False) -> None:
        """Erases whole sectors; with `starts` the board then starts its program."""
        after = "hard-reset" if starts else "no-reset"
        self._run(["erase-region", hex(address), hex(size)], 0, after, size)

    def start(self) -> None:
        """Resets the board, so that it starts its program."""
        self._run(["read-mac"], 0, "hard-reset")

    def _run(self, words: Sequence[str], carried: int, after: str = "no-reset", busy_bytes: int = 0) -> str:
        deadline_s = (
            START_S + SLOWEST * carried * BITS_PER_BYTE / self._baud + WAIT_PER_MIB_S * (carried + busy_bytes) / MIB
        )
        options = ["--port", self._port, "--baud", str(self._baud), "--after", after, *self._options]
        command = ["esptool", *options, *words]
        try:
            return run(command, self._port, deadline_s, self._tell)
        except ToolFailed as error:
            if DIFFERED in error.output or error.is_late:
                raise
        return run(command, self._port, deadline_s, self._tell)  # a bad byte on the line ends esptool

    def _tell(self, line: str) -> None:
        found = WRITTEN.search(line) or READ.search(line)
        if found:
            self._on_progress(float(next(one for one in found.groups() if one)))


@contextmanager
def _files(pieces: Sequence[Piece]) -> Iterator[list[str]]:
    """Gives pieces as files that only this user can read, and the words for esptool's command line."""
    with tempfile.TemporaryDirectory() as folder:
        words = []
        for number, (address, content) in enumerate(pieces):
            path = Path(folder, str(number))
            path.write_bytes(content)
            words += [hex(address), str(path)]
        yield words


def _share_sectors(one: Piece, other: Piece) -> bool:
    first, second = (range(at // SECTOR_BYTES, -(-(at + len(content)) // SECTOR_BYTES)) for at, content in (one, other))
    return first.start < second.stop and second.start < first.stop


def _family(name: str) -> str:
    """`ESP32-D0WD-V3` is an ESP32, `ESP32-S3` itself."""
    found = re.match(r"ESP32-(S|C|H|P|E)\d+", name)
    return found[0] if found else name.partition("-")[0]
