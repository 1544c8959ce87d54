"""What of a durable session the store does not have yet."""

from gateway.store import sessions


class Unsaved(dict[str, int]):
    """The rows of one session that differ from the store's: by topic filter, "" for the session itself.

    Each has the number of its last change, so that a change which comes while an earlier one is written stays.
    """

    __slots__ = ("_changes", "_noted", "_saved")

    def __init__(self) -> None:
        super().__init__()
        self._changes = 0
        self._noted: sessions.SessionDescription | None = None
        self._saved: sessions.SessionDescription | None = None

    def note(self, name: str) -> int:
        """Notes that a row has changed; returns the number of this change, for ``note_saved``."""
        self._changes += 1
        self[name] = self._changes
        return self._changes

    def note_description(self, description: sessions.SessionDescription) -> None:
        """Notes a change of the session itself, if its description is not what it was at the last call."""
        if description != self._noted:
            self._noted = description
            self.note("")

    def note_saved(self, changes: dict[str, int]) -> None:
        """Notes that the store has these changes now."""
        for name, change in changes.items():
            if self.get(name) == change:
                del self[name]
                if not name:
                    self._saved = self._noted

    @property
    def has_only_come_or_gone(self) -> bool:
        """Whether nothing is unsaved but the time at which its client left, or that it is back."""
        saved, noted = self._saved, self._noted
        return (
            self.keys() == {""}
            and saved is not None
            and noted is not None
            and (saved.expiry_s, saved.user, saved.link) == (noted.expiry_s, noted.user, noted.link)
        )
