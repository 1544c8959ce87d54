"""The console of a board that runs MicroPython, by mpremote as a process."""

import json
from dataclasses import dataclass
from typing import Any

from tools.cli.board.errors import BoardError
from tools.cli.board.process import ToolFailed, run

ASK_S, COPY_S = 30.0, 180.0
BEGIN = "holdfast:"
ASK = """
import gc, os, sys
gc.collect()
r = {"platform": sys.platform, "version": list(sys.implementation.version[:3])}
r["machine"] = getattr(sys.implementation, "_machine", "")
r["mpy"] = getattr(sys.implementation, "_mpy", 0)
r["free"], r["used"] = gc.mem_free(), gc.mem_alloc()
r["idf"] = r["storage"] = r["romfs"] = 0
r["partitions"] = []
try:
    import esp32
    r["idf"] = max([one[2] for one in esp32.idf_heap_info(esp32.HEAP_DATA)] or [0])
    r["partitions"] = [one.info()[2:5] for one in esp32.Partition.find(esp32.Partition.TYPE_DATA)]
except (ImportError, AttributeError):
    pass
try:
    import rp2
    r["storage"] = rp2.Flash().ioctl(4, 0) * 4096
except (ImportError, AttributeError):
    pass
try:
    import vfs
    r["romfs"] = vfs.rom_ioctl(1)
except (ImportError, AttributeError):
    pass
r["names"] = os.listdir("/")
v = os.statvfs("/")
r["files"] = v[0] * v[2]
import json
print("holdfast:" + json.dumps(r))
"""


@dataclass(frozen=True)
class Answer:
    """What MicroPython says of itself and its board.

    Attributes:
        platform: `esp32` or `rp2`.
        version: of MicroPython.
        machine: the board's name.
        free, used: bytes of MicroPython's heap.
        idf: the largest block of an ESP32's heap outside of it, by which MicroPython's heap can grow.
        has_romfs: whether it executes modules in place, from a ROMFS.
        names: the names in the root of its file system.
        files: the size of its file system.
        storage: the size of an RP2's storage area.
    """

    platform: str
    version: tuple[int, ...]
    machine: str
    free: int
    used: int
    idf: int
    has_romfs: bool
    names: tuple[str, ...]
    files: int
    storage: int

    @property
    def heap(self) -> int:
        """The bytes that a program can have, growth included."""
        return self.free + self.used + self.idf


class Console:
    """The console at a serial port. The methods raise BoardError, and Refused for a port that cannot be used."""

    def __init__(self, port: str) -> None:
        self._port = port

    def ask(self) -> Answer:
        """Asks the board what it is."""
        told = self.value(ASK)
        return Answer(
            platform=told["platform"],
            version=tuple(told["version"]),
            machine=told["machine"],
            free=told["free"],
            used=told["used"],
            idf=told["idf"],
            has_romfs=bool(told["romfs"]),
            names=tuple(told["names"]),
            files=told["files"],
            storage=told["storage"],
        )

    def value(self, program: str, deadline_s: float = ASK_S) -> Any:
        """Runs a program on the board and returns the JSON that it prints behind "holdfast:"."""
        output = self.run("exec", program, deadline_s=deadline_s)
        lines = [line for line in output.splitlines() if line.startswith(BEGIN)]
        try:
            return json.loads(lines[-1].removeprefix(BEGIN))
        except (IndexError, ValueError) as error:
            raise BoardError(f"{self._port}: the board's answer cannot be read: {output[-200:]!r}") from error

    def run(self, *words: str, deadline_s: float = COPY_S) -> str:
        """Runs a command of mpremote; no secret may be in it."""
        try:
            return run(["mpremote", "connect", self._port, *words], self._port, deadline_s)
        except ToolFailed as error:
            if "could not enter raw repl" in error.output or error.is_late:
                raise BoardError(
                    f"{self._port}: the board does not answer at MicroPython's prompt: it prints without end, "
                    "resets, or runs something else"
                ) from error
            raise
