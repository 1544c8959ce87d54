"""SLIP frames (RFC 1055), with an END byte before and behind each, as the ROM loader and esptool send them."""

END, ESC, ESC_END, ESC_ESC = 0xC0, 0xDB, 0xDC, 0xDD


def frame(packet: bytes) -> bytes:
    """A packet with its escapes, between two END bytes."""
    escaped = packet.replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc")
    return b"\xc0" + escaped + b"\xc0"


class Deframer:
    """Finds the packets in a stream of bytes. It drops a frame with a wrong escape, and all bytes between frames."""

    def __init__(self, longest: int) -> None:
        self._packet: bytearray | None = None
        self._is_escaped = False
        self._longest = longest

    def feed(self, content: bytes) -> list[bytes]:
        """Takes what the line has brought; returns the packets that are whole now."""
        found = []
        for byte in content:
            if byte == END:
                if self._packet:
                    found.append(bytes(self._packet))
                    self._packet = None
                else:  # two END bytes in a row: the second opens a frame
                    self._packet = bytearray()
                self._is_escaped = False
            elif self._packet is not None:
                self._take(byte)
        return found

    def _take(self, byte: int) -> None:
        assert self._packet is not None
        if self._is_escaped:
            self._is_escaped = False
            if byte not in (ESC_END, ESC_ESC):
                self._packet = None
                return
            byte = END if byte == ESC_END else ESC
        elif byte == ESC:
            self._is_escaped = True
            return
        self._packet.append(byte)
        if len(self._packet) > self._longest:
            self._packet = None
