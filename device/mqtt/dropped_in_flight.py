"""Messages of QoS 2 that give way to newer ones while they are on the way: the broker goes on waiting for a PUBREL.

Left in its session, each of their packet identifiers would take a place of its Receive Maximum, and swallow the message
that has the same one 65,535 messages later. So their numbers are noted before the store drops them.
"""

from device.noted import UNRELEASED, Noted
from flash_store.errors import StoreFull

BEGUN_MAX = 24  # on the way when the power went: a window, behind refused ones and acknowledged ones not yet in flash


class Unreleased:
    """For a device whose store drops its oldest messages.

    Args:
        log: the device's `flash_store.log.Log`.
    """

    def __init__(self, log) -> None:
        self._log = log
        self._noted = Noted(log, UNRELEASED)
        self._begun = log.ids(BEGUN_MAX)
        log.before_drop = self._note

    @property
    def ids(self) -> list:
        """What was dropped and is to be released."""
        return [message_id for message_id in self._noted.ids if not self._log.holds(message_id)]

    def begin(self, message_id: int) -> None:
        """It goes out at QoS 2."""
        if message_id not in self._begun:
            self._begun.append(message_id)

    def end(self, message_id: int) -> None:
        """The broker has its packet identifier no longer."""
        if message_id in self._begun:
            self._begun.remove(message_id)
        self._noted.remove(message_id)

    def forget(self) -> None:
        """The session is gone."""
        self._begun = []
        self._noted.change([])

    def _note(self, last_id: int) -> None:
        """Raises StoreFull."""
        noted = self._noted.ids
        self._noted.change(noted + [one for one in self._begun if one <= last_id and one not in noted])
        if not self._noted.is_durable:
            raise StoreFull("no room to note what is on the way")
