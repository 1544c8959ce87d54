"""QoS 2 messages that a full store drops while they are in flight: the broker goes on waiting for their PUBREL.

If no PUBREL came, each of their packet identifiers would use up a place of the broker's Receive Maximum, and the broker
would discard the message that has the same identifier 65,535 messages later. So the device notes the ids of these
messages before the store drops them, and sends their PUBREL.
"""

from device.mqtt.settings import DROPPED_IN_FLIGHT, DurableIds
from flash_store.errors import StoreFull

# The oldest messages of the log that may have been in flight when the power failed: a window of them, after refused
# messages and messages whose acknowledgement was not in flash yet.
BEGUN_MAX = 24


class DroppedInFlight:
    """For a device whose store drops its oldest messages.

    Args:
        log: the device's `flash_store.log.Log`.
    """

    def __init__(self, log) -> None:
        self._log = log
        self._noted = DurableIds(log, DROPPED_IN_FLIGHT)
        self._begun = log.ids(BEGUN_MAX)
        log.before_drop = self._note

    @property
    def ids(self) -> list:
        """The ids of dropped messages for which PUBREL is still to be sent or answered."""
        return [message_id for message_id in self._noted.ids if not self._log.holds(message_id)]

    def begin(self, message_id: int) -> None:
        """The message is being sent at QoS 2."""
        if message_id not in self._begun:
            self._begun.append(message_id)

    def end(self, message_id: int) -> None:
        """The broker no longer holds the message's packet identifier."""
        if message_id in self._begun:
            self._begun.remove(message_id)
        self._noted.remove(message_id)

    def forget(self) -> None:
        """The broker has lost the session, and with it all packet identifiers."""
        self._begun = []
        self._noted.change([])

    def _note(self, last_id: int) -> None:
        """Called before the store drops messages up to `last_id`. Raises StoreFull if they cannot be noted."""
        noted = self._noted.ids
        self._noted.change(noted + [one for one in self._begun if one <= last_id and one not in noted])
        if not self._noted.is_durable:
            raise StoreFull("no room to note what is on the way")
