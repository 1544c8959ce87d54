"""The last lines of the log, in RAM, which a command fetches. The oldest go first; a restart forgets all."""

import json
import struct

HEAD = "<HI"  # bytes of the text, uptime in tenths of a second
HEAD_BYTES = 6
LINE_CHARACTERS_MAX = 160
ANSWER_BYTES = 768  # of all lines in one answer, at most


class LogRing:
    """Lines in a buffer that is allocated once. Lines are numbered from 1 at each start.

    Args:
        size: bytes of the buffer; a line takes its UTF-8 and 6 bytes more.
    """

    def __init__(self, size: int) -> None:
        self._buffer = bytearray(size)
        self._begin = 0  # where the oldest line begins
        self._used = 0
        self._count = 0
        self._last = 0  # number of the newest line

    def add(self, text: str, uptime_ms: int) -> None:
        """Keeps a line, cut to 160 characters."""
        data = text[:LINE_CHARACTERS_MAX].encode()
        while self._used + HEAD_BYTES + len(data) > len(self._buffer):
            self._drop()
        self._put(struct.pack(HEAD, len(data), uptime_ms // 100))
        self._put(data)
        self._count += 1
        self._last += 1

    def lines(self, after: int) -> dict:
        """Returns the lines behind number `after`, as many as fit into an answer.

        `first` is the number of the first of `lines`, `left` is how many come behind the last of them.
        """
        at, number, size = self._begin, self._last - self._count + 1, 0
        found: list = []
        first = max(number, after + 1)
        while number <= self._last:
            length, tenths = struct.unpack(HEAD, self._get(at, HEAD_BYTES))
            if number >= first:
                line = f"{tenths // 10}.{tenths % 10} " + str(self._get(at + HEAD_BYTES, length), "utf-8")
                size += len(json.dumps(line)) + 2
                if size > ANSWER_BYTES and found:
                    break
                found.append(line)
            at += HEAD_BYTES + length
            number += 1
        return {"first": first, "lines": found, "left": self._last - number + 1}

    def _drop(self) -> None:
        size = HEAD_BYTES + struct.unpack(HEAD, self._get(self._begin, HEAD_BYTES))[0]
        self._begin = (self._begin + size) % len(self._buffer)
        self._used -= size
        self._count -= 1

    def _put(self, data: bytes) -> None:
        at = (self._begin + self._used) % len(self._buffer)
        piece = data[: len(self._buffer) - at]
        self._buffer[at : at + len(piece)] = piece
        self._buffer[: len(data) - len(piece)] = data[len(piece) :]
        self._used += len(data)

    def _get(self, at: int, length: int) -> bytes:
        at %= len(self._buffer)
        piece = bytes(self._buffer[at : at + length])
        return piece + self._buffer[: length - len(piece)]
