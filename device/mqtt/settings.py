"""The settings in which `device.mqtt` keeps what must survive a power cut, such as lists of message ids."""

import struct

from flash_store.errors import MessageTooLarge, StoreCorrupt, StoreFull

# Keys of settings, see `publisher`, `dropped_in_flight`, `session_probe`, `refusals`, `brokers` and `scram`.
DISOWNED, DROPPED_IN_FLIGHT, SESSION_PROBE = "lost_session", "unreleased", "session_mark"
PROVEN, SET_ASIDE = "refused", "set_aside"
PLACE, INTERVAL = "place", "interval_ms"  # see `device.field.place` and `commands`
BROKER, SCRAM = "broker", "scram"  # the broker's number is appended to SCRAM


def read_setting(log, key: str) -> bytes | None:
    """Returns the value of a setting; None if it is not set, or its record is corrupt."""
    try:
        return log.settings.get(key)
    except StoreCorrupt:
        return None


def remove_setting(log, key: str) -> None:
    """Removes a setting; a store without room for the removal keeps it."""
    if read_setting(log, key) is not None:
        try:
            log.settings.remove(key)
        except StoreFull:
            pass


def is_sent(log) -> bool:
    """Whether no message waits to be sent, and the broker waits for no PUBREL."""
    return not len(log) and read_setting(log, DROPPED_IN_FLIGHT) is None


class DurableIds:
    """A list of message ids in a setting: `ids` is the list, `is_durable` tells whether flash has the same list.

    Args:
        key: the setting's key.
        otherwise: called if the setting's record is corrupt; returns the ids to begin with.
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
        """Replaces the list. It is durable on return, unless the store has no room; see `is_durable`."""
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
