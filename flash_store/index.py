"""Where the unacknowledged messages are: 8 bytes of RAM each."""

import struct

_ENTRY = "<II"
_ENTRY_SIZE = 8
_RECEIVED = 0x80000000  # beside the place: the receiver has the message, PUBREC came
_PLACE = 0x7FFFFFFF


class Index:
    """Unacknowledged message ids in order, each with its place on flash (31 bits that only the ring reads) and whether
    its PUBREC came."""

    def __init__(self) -> None:
        self._entries = bytearray()

    def __len__(self) -> int:
        return len(self._entries) // _ENTRY_SIZE

    def entry(self, position: int):
        """(id, place) of the `position`th oldest message."""
        message_id, place = self._entry(position)
        return message_id, place & _PLACE

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

    def put(self, message_id: int, place: int, received: bool = False) -> int | None:
        """Set a message's place; returns the one it had before. What was received stays received."""
        before = self.place(message_id)
        start = self.find(message_id) * _ENTRY_SIZE
        end = start if before is None else start + _ENTRY_SIZE
        if received or self.is_received(message_id):
            place |= _RECEIVED
        self._entries[start:end] = struct.pack(_ENTRY, message_id, place)
        return before

    def set_received(self, message_id: int) -> bool:
        """PUBREC came; False when the message is not here."""
        place = self.place(message_id)
        if place is None:
            return False
        self.put(message_id, place, True)
        return True

    def is_received(self, message_id: int) -> bool:
        return self.place(message_id) is not None and self._entry(self.find(message_id))[1] > _PLACE

    def received(self) -> list[int]:
        """The ids whose PUBREC came, oldest first."""
        found = []
        for position in range(len(self)):
            message_id, place = self._entry(position)
            if place > _PLACE:
                found.append(message_id)
        return found

    def remove(self, message_id: int) -> int | None:
        """Forget a message; returns its place, None when it was not there."""
        place = self.place(message_id)
        if place is not None:
            self._cut(self.find(message_id))
        return place

    def oldest_in(self, age) -> tuple[int, int]:
        """(the last id among those whose place has the smallest `age(place)`, how many ids there are up to it);
        (0, 0) when there is none."""
        oldest, last, count = None, 0, 0
        for position in range(len(self)):
            message_id, place = self.entry(position)
            if oldest is None or age(place) <= oldest:
                oldest, last, count = age(place), message_id, position + 1
        return last, count

    def places(self, wanted) -> list[int]:
        """The places that are `wanted`."""
        places = [self.entry(position)[1] for position in range(len(self))]
        return [place for place in places if wanted(place)]

    def remove_if(self, wanted) -> list[int]:
        """Forget every message whose place is `wanted`; returns their ids."""
        removed = []
        for position in range(len(self) - 1, -1, -1):
            message_id, place = self.entry(position)
            if wanted(place):
                self._cut(position)
                removed.append(message_id)
        return removed[::-1]

    def _entry(self, position: int):
        return struct.unpack_from(_ENTRY, self._entries, position * _ENTRY_SIZE)

    def _cut(self, position: int) -> None:
        self._entries[position * _ENTRY_SIZE : (position + 1) * _ENTRY_SIZE] = b""
