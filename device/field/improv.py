"""Packets of Improv over serial (improv-wifi.com/serial, version 1), by which a browser tells a board its Wi-Fi.

    "IMPROV"  version  kind  length  data  checksum

Each of the four numbers is a byte; the checksum is the sum of all bytes before it. The board ends each packet with a
line feed: browsers look for the next one at the begin of a line, between the lines of the log.
"""

HEADER = b"IMPROV"
VERSION = 1
STATE, ERROR, COMMAND, RESULT = 1, 2, 3, 4  # kinds of packets
READY, PROVISIONING, PROVISIONED = 2, 3, 4  # states
NO_ERROR, BAD_COMMAND, UNKNOWN_COMMAND, NOT_JOINED, FAILED = 0, 1, 2, 3, 255
SEND_SETTINGS, GET_STATE, GET_DEVICE, GET_NETWORKS = 1, 2, 3, 4  # commands
BAD = 0  # stands for a command that cannot be read
DATA_MAX = 100  # of a command with the longest name of a network and the longest key
PAUSE_MS = 500  # where nothing comes for so long, the rest of a packet does not come any more
HEAD_BYTES = 9


class Reader:
    """Finds commands among the bytes of a line, whatever is between them. It keeps 109 bytes at most."""

    def __init__(self) -> None:
        self._kept = b""  # the begin of a packet
        self._heard_ms = 0

    @property
    def kept(self) -> int:
        """How many bytes it keeps."""
        return len(self._kept)

    def feed(self, data: bytes, now_ms: int) -> list:
        """Takes bytes that came, or none; returns the commands that are complete, as (number, data).

        A packet with a wrong length or checksum is (BAD, b""). Another packet may begin within it. Only a look that
        finds nothing tells of a pause: after a call that blocks, old bytes come late.
        """
        if not data:
            if now_ms - self._heard_ms >= PAUSE_MS:
                self._kept = b""
            return []
        self._heard_ms = now_ms
        found: list = []
        left = self._kept + data
        while True:
            left = _from_header(left)
            if len(left) < HEAD_BYTES:
                break
            version, kind, length = left[6], left[7], left[8]
            is_command = version == VERSION and kind == COMMAND
            end = HEAD_BYTES + length
            if version == VERSION and length <= DATA_MAX:
                if len(left) <= end:
                    break
                if sum(left[:end]) & 0xFF == left[end]:
                    if is_command:
                        found.append(_command(left[HEAD_BYTES:end]))
                    left = left[end + 1 :]
                    continue
            if is_command:
                found.append((BAD, b""))
            left = left[1:]
        self._kept = left
        return found


def packet(kind: int, data: bytes) -> bytes:
    """Returns a packet, with the line feed behind it."""
    content = HEADER + bytes([VERSION, kind, len(data)]) + data
    return content + bytes([sum(content) & 0xFF, 10])


def result(command: int, texts: list) -> bytes:
    """Returns the packet that answers a command with texts in UTF-8, together 251 bytes with one more for each."""
    content = b"".join([bytes([len(text)]) + text for text in texts])
    return packet(RESULT, bytes([command, len(content)]) + content)


def read_texts(data: bytes) -> list | None:
    """Returns the texts of a command, in UTF-8; None if their lengths do not fit."""
    texts: list = []
    at = 0
    while at < len(data):
        end = at + 1 + data[at]
        if end > len(data):
            return None
        texts.append(data[at + 1 : end])
        at = end
    return texts


def _command(data: bytes) -> tuple:
    return (data[0], data[2:]) if len(data) >= 2 and data[1] == len(data) - 2 else (BAD, b"")


def _from_header(data: bytes) -> bytes:
    """Returns what begins with a header, or with as much of one as came; nothing if none has begun."""
    begin = data.find(HEADER)
    if begin >= 0:
        return data[begin:]
    for length in range(len(HEADER) - 1, 0, -1):
        if data.endswith(HEADER[:length]):
            return data[-length:]
    return b""
