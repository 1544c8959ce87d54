"""Which readings are worth a message."""

import binascii
import struct

KEPT = "<dq"  # the value that was sent, and when
NOTHING = (0.0, -1)


class DeadBand:
    """Lets a value through that differs enough from the last one that was sent, or whose silence gets too long.

    A name that is absent from one sample is new in the next: a sensor that comes back is heard at once.

    Args:
        bands: for a name (threshold, heartbeat in ms); names without are let through always. Texts differ or do not.
        interval_ms: from one sample to the next.
    """

    def __init__(self, bands: dict, interval_ms: int) -> None:
        self._bands = bands
        self.interval_ms = interval_ms
        self._sent: dict = {}  # name: (value, when); of a text its mark

    def choose(self, samples: list, now_ms: int) -> list:
        """Those of one moment's (name, unit, value) that are to be sent."""
        if not self._bands:
            return samples
        present = [name for name, _, _ in samples]
        for name in list(self._sent):
            if name not in present:
                self._sent.pop(name)
        return [sample for sample in samples if self._is_due(sample, now_ms)]

    def note(self, samples: list, now_ms: int) -> None:
        """These were sent."""
        for name, _, value in samples:
            if name in self._bands:
                self._sent[name] = (_mark(value), now_ms)

    def encode(self) -> bytes:
        """What was sent, for the next life of the same uptime: 16 bytes a band."""
        return b"".join([struct.pack(KEPT, *self._sent.get(name, NOTHING)) for name in sorted(self._bands)])

    def decode(self, content: bytes) -> None:
        """Takes up what another one with the same bands has encoded."""
        names = sorted(self._bands)
        if len(content) != len(names) * struct.calcsize(KEPT):
            return
        for place, name in enumerate(names):
            sent = struct.unpack_from(KEPT, content, place * struct.calcsize(KEPT))
            if sent[1] >= 0:
                self._sent[name] = sent

    def _is_due(self, sample: tuple, now_ms: int) -> bool:
        name, _, value = sample
        if name not in self._sent:
            return True
        threshold, heartbeat_ms = self._bands[name]
        sent, sent_ms = self._sent[name]
        # The next sample would come too late for a heartbeat.
        if now_ms + self.interval_ms - sent_ms > heartbeat_ms:
            return True
        return _mark(value) != sent if isinstance(value, str) else abs(value - sent) >= threshold


def _mark(value):
    """Of a text a number that boards' floats hold exactly and that tells it from others."""
    return binascii.crc32(value.encode()) & 0xFF_FFFF if isinstance(value, str) else value
