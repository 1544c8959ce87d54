"""A broker that has lost the session may have lost QoS 2 messages whose PUBREC came: for devices told to resend them.

Their numbers are kept in a setting: over the next session such a message needs a PUBREC of its own before its PUBREL.
"""

import struct

KEY = "lost_session"


class Disowned:
    """The ids of messages whose PUBREC was said in a session that is gone."""

    def __init__(self, log) -> None:
        self._log = log
        value = log.settings.get(KEY) or b""
        self._ids = list(struct.unpack(f"<{len(value) // 4}I", value))

    def __contains__(self, message_id: int) -> bool:
        return message_id in self._ids

    def add(self, message_ids: list) -> None:
        """Durable on return. Raises StoreFull."""
        if message_ids and message_ids != self._ids:
            self._save(message_ids)

    def remove(self, message_id: int) -> None:
        """Its PUBREC came in a session that is there: durable on return. Raises StoreFull."""
        if message_id in self._ids:
            self._save([other for other in self._ids if other != message_id])

    def _save(self, message_ids: list) -> None:
        self._log.settings.set(KEY, struct.pack(f"<{len(message_ids)}I", *message_ids))
        self._ids = message_ids
