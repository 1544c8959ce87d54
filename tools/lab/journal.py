"""The devices' own counts of their readings, in files that do not depend on the messages' way."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Made(NamedTuple):
    """One message that a device made: its identity and how many readings it holds."""

    origin: str
    epoch: int
    seq: int
    readings: int


def read_journal(origin: str, path: Path) -> Iterator[Made]:
    """Yields what a device has counted; a last line torn by a power cut is not a count.

    Raises:
        ValueError: a line that is not ``epoch seq readings``, named with its file and number.
    """
    if not path.exists():
        return
    lines = path.read_text().split("\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            epoch, seq, readings = line.split(" ")
            yield Made(origin, int(epoch, 16), int(seq), int(readings))
        except ValueError:
            raise ValueError(f"{path}:{number}: expected 'epoch seq readings', found {line!r}") from None
