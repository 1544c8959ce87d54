"""A gateway with a clock of its own: ``python -m tools.lab.torture.uplink.clock CLOCK CONFIG``.

CLOCK is a file with one number, the seconds by which this gateway's clock is ahead of the machine's. The gateway reads
it for each look at its clock, so that it jumps when the number changes. TLS still checks certificates by the machine's
clock.
"""

import mmap
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tools.cli.gateway.process import run

NUMBER = struct.Struct("d")


class Clock:
    """The end of the file that sets the clock: of a gateway that is started with this file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set(0.0)

    def set(self, ahead_s: float) -> None:
        """Puts the gateway's clock so far ahead of the machine's, in seconds; behind it if below 0."""
        if not self.path.exists():
            self.path.write_bytes(bytes(NUMBER.size))
        with self.path.open("r+b") as file:  # in place: the gateway has it mapped
            file.write(NUMBER.pack(ahead_s))


def _wrapped(path: Path) -> tuple[Callable[[], float], Callable[[], int]]:
    with path.open("r+b") as file:
        ahead = mmap.mmap(file.fileno(), NUMBER.size)
    time_s, time_ns = time.time, time.time_ns
    return (
        lambda: time_s() + NUMBER.unpack_from(ahead)[0],
        lambda: time_ns() + int(NUMBER.unpack_from(ahead)[0] * 1e9),
    )


def main(clock: str, config: str) -> None:
    """Runs until SIGTERM."""
    time.time, time.time_ns = _wrapped(Path(clock))
    run(Path(config))


if __name__ == "__main__":
    main(*sys.argv[1:])
