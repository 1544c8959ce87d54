"""Where the unacknowledged messages are: 8 bytes of RAM each."""

import struct

_ENTRY = "<II"
_ENTRY_SIZE = 8


class Index:
    """Unacknowledged message ids in order, each with its place on flash (a u32 that only the log reads)."""

    def __init__(self) -> None:
        self._entries = bytearray()

    def __len__(self) -> int:
        return len(self._entries) // _ENTRY_SIZE

    def entry(self, position: int):
        """(id, place) of the `position`th oldest message."""
        return struct.unpack_from(_ENTRY, self._entries, position * _ENTRY_SIZE)

    def find(self, message_id: int) -> int:
        """How many ids are smaller than this one: its position where it is there, else where it would be."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[0] < message_id:
                low = middle + 1
            else:
                high = middle
        return low

    def place(self, message_id: int) -> int | None:
        position = self.find(message_id)
        if position < len(self):
            found, place = self.entry(position)
            if found == message_id:
                return place
        return None

    def put(self, message_id: int, place: int) -> int | None:
        """Set a message's place; returns the one it had before."""
        before = self.place(message_id)
        start = self.find(message_id) * _ENTRY_SIZE
        end = start if before is None else start + _ENTRY_SIZE
        self._entries[start:end] = struct.pack(_ENTRY, message_id, place)
        return before

    def remove(self, message_id: int) -> int | None:
        """Forget a message; returns its place, None when it was not there."""
        place = self.place(message_id)
        if place is not None:
            start = self.find(message_id) * _ENTRY_SIZE
            self._entries[start : start + _ENTRY_SIZE] = b""
        return place

    def remove_if(self, wanted) -> int:
        """Forget every message whose place is `wanted`; returns how many these were."""
        before = len(self)
        for position in range(before - 1, -1, -1):
            if wanted(self.entry(position)[1]):
                self._entries[position * _ENTRY_SIZE : (position + 1) * _ENTRY_SIZE] = b""
        return before - len(self)
