"""Bytes of a line become lines: a separator ends each, and no line is longer than is configured."""


class LineSplitter:
    """Cuts bytes into lines. It keeps one line at most, so bytes without a separator take no more memory than that.

    Args:
        separator: the bytes that end a line; it has one at least.
        longest: the most bytes of a line, without its separator.

    What comes before the first separator may be the end of a line that began earlier, so it is no line: see ``begin``.
    ``overlong`` counts the lines that were longer; they are left out. ``skipped`` counts the bytes that were left out.
    """

    def __init__(self, separator: bytes, longest: int) -> None:
        self._separator = separator
        self._longest = longest
        self._buffer = bytearray()
        self._is_inside = True  # the bytes up to the next separator are no line
        self.overlong = 0
        self.skipped = 0

    @property
    def is_between(self) -> bool:
        """Whether the last byte ended a line, so that no part of one waits."""
        return not (self._buffer or self._is_inside)

    @property
    def is_inside(self) -> bool:
        """Whether the bytes up to the next separator are no line."""
        return self._is_inside

    def begin(self) -> None:
        """The next byte begins a line: the line was quiet for long before it."""
        self._buffer.clear()
        self._is_inside = False

    def feed(self, data: bytes) -> list[bytes]:
        """Takes bytes; returns the lines that they end, without separators. Each byte is looked at once or twice."""
        separator = self._separator
        look_from = max(0, len(self._buffer) - len(separator) + 1)
        self._buffer += data
        lines = []
        start = 0
        while (end := self._buffer.find(separator, max(start, look_from))) >= 0:
            if self._is_inside:
                self.skipped += end - start
                self._is_inside = False
            elif end - start > self._longest:
                self._leave_out(end - start)
            else:
                lines.append(bytes(self._buffer[start:end]))
            start = end + len(separator)
        del self._buffer[:start]
        over = len(self._buffer) - self._longest - len(separator)
        if over > 0:
            kept = len(separator) - 1  # they may begin the separator
            if self._is_inside:
                self.skipped += len(self._buffer) - kept
            else:
                self._leave_out(len(self._buffer) - kept)
                self._is_inside = True
            del self._buffer[: len(self._buffer) - kept]
        return lines

    def _leave_out(self, size: int) -> None:
        self.overlong += 1
        self.skipped += size
