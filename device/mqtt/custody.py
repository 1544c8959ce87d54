"""The broker's acknowledgements, on their way to flash, and the messages of QoS 2 that the broker waits to be released.

The states of a message are in `device.mqtt.states`.
"""

from device.mqtt.settings import DISOWNED, SESSION_PROBE, DurableIds, remove_setting
from flash_store.errors import StoreFull
from wire.properties import REASON_STRING

OWED_MS = 1_000  # a PUBREC for which the store had no room is tried again after this time
FLUSH_MS = 1_000  # an acknowledgement waits this long for others to share its record in flash


class Custody:
    """Notes in the log what the broker acknowledges.

    The PUBREC of a QoS 2 message is durable before PUBREL is sent. A broker that has lost the session may also have
    lost messages for which it had sent PUBREC. The device sends these again, and waits for a new PUBREC: until that
    comes, the message is called disowned. If the configuration says not to resend them, the device forsakes them, which
    leaves a gap.

    Args:
        log: the device's `flash_store.log.Log`.
        say: called with each line of text for the console and the log.
        resends: whether messages that had their PUBREC are sent again if the broker loses the session.
        dropped: `device.mqtt.dropped_in_flight.DroppedInFlight` of a device whose store drops its oldest messages.
    """

    def __init__(self, log, say, resends: bool, dropped) -> None:
        self._log = log
        self._say = say
        self._resends = resends
        self._dropped = dropped
        self._disowned = DurableIds(log, DISOWNED, log.pubrecs)
        self._remark = ""  # the last Reason String with which the broker accepted a message
        self.owed: list = []  # ids of messages whose PUBREC came, but is not in flash yet
        self.owed_ms: int | None = None  # when to try again to store those PUBRECs
        self.flush_ms: int | None = None  # when to write acknowledgements to flash

    @property
    def is_noted(self) -> bool:
        """Whether the list of disowned messages is durable, so that it would survive a restart."""
        return self._disowned.is_durable

    @property
    def taken(self) -> list:
        """The ids of messages that had their PUBREC: the broker waits for PUBREL."""
        return [message_id for message_id in self._log.pubrecs() if message_id not in self._disowned.ids]

    @property
    def dropped(self):
        """The ids of messages that the store dropped while they were in flight: the broker waits for PUBREL."""
        return () if self._dropped is None else self._dropped.ids

    def detach(self) -> None:
        """The connection is lost; if the session goes on, the broker repeats each PUBREC."""
        self.owed, self.owed_ms = [], None

    def lose_session(self) -> None:
        """The broker has lost the session."""
        if self._dropped is not None:
            self._dropped.forget()
        if not self._resends and self.taken:
            self._forsake(self.taken)
        self._disowned.change(self._log.pubrecs())
        if self._disowned.is_durable:  # until then the probe has to find out after a restart that the session is lost
            remove_setting(self._log, SESSION_PROBE)

    def disown(self, message_id: int) -> None:
        """The broker does not know the message whose PUBREC it had sent."""
        self._disowned.change(self._disowned.ids + [message_id])

    def begin(self, message_id: int) -> None:
        """The message is being sent at QoS 2."""
        if self._dropped is not None:
            self._dropped.begin(message_id)

    def end(self, message_id: int) -> None:
        """The exchange of this message with the broker is over."""
        self._disowned.remove(message_id)
        if self._dropped is not None:
            self._dropped.end(message_id)

    def take_pubrec(self, message_id: int, now_ms: int) -> None:
        """The broker has sent PUBREC; `note_due` makes it durable."""
        if not self.owed:
            self.owed_ms = now_ms
        self.owed.append(message_id)

    def note_due(self, now_ms: int):
        """Writes due acknowledgements and PUBRECs to flash; returns the ids of messages that may be released now."""
        if self.flush_ms is not None and now_ms >= self.flush_ms:
            self._flush()
        if self.owed_ms is None or now_ms < self.owed_ms:
            return ()
        self.owed_ms = None
        noted: list = []
        try:
            while self.owed:
                self._log.note_pubrec(self.owed[0])
                self._disowned.remove(self.owed[0])
                noted.append(self.owed.pop(0))
        except StoreFull:
            self.owed_ms = now_ms + OWED_MS
        return noted

    def acknowledge(self, message_id: int, is_last: bool, now_ms: int) -> None:
        """The broker has custody of the message. `is_last`: no other answer is outstanding."""
        self.end(message_id)
        self._log.acknowledge(message_id)
        if is_last:
            self._flush()
        elif self.flush_ms is None:
            self.flush_ms = now_ms + FLUSH_MS

    def say_remark(self, message_id: int, answer) -> None:
        """Logs the Reason String of an accepted message, once for each new text.

        A gateway that gives messages another identity says so in its first answer over each connection.
        """
        text = answer.properties.get(REASON_STRING)
        if text and text != self._remark:
            self._remark = text
            self._say(f"message {message_id} taken, but: {text}")

    def _forsake(self, lost: list) -> None:
        try:
            self._log.forsake(lost)
        except StoreFull:
            return  # there is no room for the gap, so the messages are resent
        self._say(f"the broker has lost the session, and {len(lost)} messages with it that it had taken")

    def _flush(self) -> None:
        self._log.flush()
        self.flush_ms = None
