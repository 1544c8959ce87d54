"""Counts how many readings the device has made, in a file apart from the messages, so that a check can compare them."""

import os

COPY_BYTES = 512


class Journal:
    """A file with a line `epoch seq readings` for each message, epoch in hexadecimal.

    The constructor makes a missing file, counts the readings of all boots in `made` and removes a last line that a
    power cut has torn. Raises OSError, and ValueError naming a line that is not of this form.
    """

    def __init__(self, path: str) -> None:
        self.made = 0
        open(path, "ab").close()
        length = self._count(path)
        if length < os.stat(path)[6]:
            _cut(path, length)
        self._path = path

    def add(self, epoch: int, seq: int, readings: int) -> None:
        """To be called after the message is durable."""
        with open(self._path, "ab") as file:
            file.write(f"{epoch:08x} {seq} {readings}\n".encode())
        self.made += readings

    def _count(self, path: str) -> int:
        """Counts the readings; returns the bytes up to the end of the last whole line."""
        length = number = 0
        with open(path, "rb") as file:
            while (line := file.readline()).endswith(b"\n"):
                number += 1
                length += len(line)
                try:
                    _, _, readings = line.split()
                    self.made += int(readings)
                except ValueError:
                    raise ValueError(f"journal {path}, line {number}: expected 'epoch seq readings', found {line!r}")
        return length


class NoJournal:
    """Keeps no counts."""

    made = 0

    def add(self, epoch: int, seq: int, readings: int) -> None:
        pass


def _cut(path: str, length: int) -> None:
    """Truncates a file to `length` bytes by means of a copy, because MicroPython cannot truncate."""
    copy = path + ".new"
    with open(path, "rb") as old, open(copy, "wb") as new:
        while length:
            piece = old.read(min(COPY_BYTES, length))
            new.write(piece)
            length -= len(piece)
    os.rename(copy, path)
