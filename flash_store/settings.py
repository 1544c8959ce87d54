"""Small named values that survive power cuts. Each is a SET record on flash; the last record of a key counts [S1]."""

from flash_store import record
from flash_store.errors import MessageTooLarge, StoreCorrupt
from flash_store.record import MOVE, SET

RESERVED = "\x00"  # the store's own keys begin with this character


class Settings:
    """The settings of one log: bytes by name, which take `room` bytes at most. Each change is durable on return."""

    def __init__(self, writer) -> None:
        self._writer = writer
        self.room = writer.ring.capacity // 2

    def keys(self) -> list[str]:
        """Returns the names that have a value, sorted."""
        return sorted(str(key, "utf-8") for key in self._writer.setting_places if not key.startswith(RESERVED.encode()))

    def get(self, key: str) -> bytes | None:
        """Returns the value; None if there is none. Raises StoreCorrupt if its record is corrupt."""
        place = self._writer.setting_places.get(key.encode())
        if place is None:
            return None
        found = self._writer.read(place)
        if found is None:
            raise StoreCorrupt(f"setting {key!r} cannot be read any more")
        return bytes(found[2])

    def set(self, key: str, value: bytes) -> None:
        """Sets a value; it is durable on return.

        Raises ValueError for a name that is empty or reserved, MessageTooLarge if all settings together would take more
        than half a sector, StoreFull.
        """
        if not key or key.startswith(RESERVED):
            raise ValueError(f"setting {key!r}: a name is not empty and begins with no zero character")
        size = self._writer.extent(len(key.encode()) + len(value)) + self._size_of_others(key.encode())
        if size > self.room:
            raise MessageTooLarge(f"setting {key!r}: all settings would take {size} bytes, {self.room} fit")
        self.put(key, value)

    def remove(self, key: str) -> bool:
        """Removes a value; returns False if there was none."""
        name = key.encode()
        if name not in self._writer.setting_places:
            return False
        self._writer.write(SET, record.REMOVED, 0, len(name), (name,))
        return True

    def put(self, key: str, value: bytes, is_move: bool = False) -> None:
        """As `set`, but without its limits: for the store's own keys."""
        name = key.encode()
        self._writer.write(SET, 0, 0, len(name), (name, value), is_move)

    def make_room(self, key: str, value: bytes, is_move: bool) -> None:
        """Makes room for a `put` of this value, by relocating and erasing. Raises StoreFull."""
        self._writer.make_room(MOVE if is_move else SET, self._writer.extent(len(key.encode()) + len(value)))

    def _size_of_others(self, name: bytes) -> int:
        places = self._writer.setting_places.items()
        size_at = self._writer.ring.size_at
        return sum(size_at(at) for key, at in places if key != name and not key.startswith(RESERVED.encode()))
