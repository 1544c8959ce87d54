"""Numbers of messages that outlive a power cut, in a setting of the store."""

import struct

from flash_store.errors import MessageTooLarge, StoreCorrupt, StoreFull

# Keys of settings, see `publisher`, `unreleased`, `session_mark`, `refusals`, `brokers` and `scram`.
DISOWNED, UNRELEASED, SESSION_MARK = "lost_session", "unreleased", "session_mark"
PROVEN, SET_ASIDE = "refused", "set_aside"
BROKER, SCRAM = "broker", "scram"  # the latter with the number of the broker


def read_setting(log, key: str) -> bytes | None:
    """None also where it cannot be read any more."""
    try:
        return log.settings.get(key)
    except StoreCorrupt:
        return None


def remove_setting(log, key: str) -> None:
    """Where there is room for it."""
    if read_setting(log, key) is not None:
        try:
            log.settings.remove(key)
        except StoreFull:
            pass


def is_sent(log) -> bool:
    """Whether nothing waits for the broker any more, nor the broker for a PUBREL."""
    return not len(log) and read_setting(log, UNRELEASED) is None


class Noted:
    """`ids`, and whether flash has the same ones: `is_durable`.

    Args:
        otherwise: called for the ids where flash has lost them.
    """

    def __init__(self, log, key: str, otherwise=list) -> None:
        self._settings = log.settings
        self._key = key
        self.is_durable = True
        try:
            value = self._settings.get(key) or b""
            self.ids = list(struct.unpack(f"<{len(value) // 4}I", value))
        except StoreCorrupt:
            self.ids = otherwise()

    def change(self, ids: list) -> None:
        """Durable on return where there is room for it."""
        if ids == self.ids and self.is_durable:
            return
        self.ids = ids
        try:
            if ids:
                self._settings.set(self._key, struct.pack(f"<{len(ids)}I", *ids))
            else:
                self._settings.remove(self._key)
            self.is_durable = True
        except (StoreFull, MessageTooLarge):
            self.is_durable = False

    def remove(self, message_id: int) -> None:
        if message_id in self.ids:
            self.change([other for other in self.ids if other != message_id])
