"""Finds out whether the broker still has the session that the device knows; for MQTT 5 devices that subscribe.

A broker that has lost the session makes a new one at the next CONNECT, and says so in its CONNACK. That CONNACK may be
lost, or the power may fail before the device has noted it. Then the CONNACK after it says Session Present like any
other, and the device would take messages that had their PUBREC in the old session for released.

So the device marks each session: the marks are subscriptions to topics to which nothing is published. When a session is
in doubt, the device sends an UNSUBSCRIBE for one mark, and the UNSUBACK says whether the mark existed. The UNSUBSCRIBE
removes that mark, so there are several, and each SUBSCRIBE sets all of them again. The device asks only a broker that
has granted the marks; a setting of the store remembers that it has.
"""

import binascii

from device.mqtt.settings import SESSION_PROBE, read_setting
from device.mqtt.states import ASKING, IDLE, IN_DOUBT, OTHER, RESUMED, SUBSCRIBING
from flash_store.errors import MessageTooLarge, StoreFull
from wire.packet_types import SUBACK
from wire.reasons import NO_SUBSCRIPTION_EXISTED, UNSPECIFIED_ERROR

MARKS = 4
FAILURES_MAX = 3  # connections that the broker ended over the marks; after that the device does without marks


class SessionProbe:
    """Args:
    log: the device's `flash_store.log.Log`.
    client_id: the device's client id.
    topic: the device's topic; the marks' topics are below it.
    """

    def __init__(self, log, client_id: str, topic: str) -> None:
        self._log = log
        self._name = binascii.crc32(f"{client_id} {topic}".encode()).to_bytes(4, "little")
        self._filters = [f"{topic}/session/{number}" for number in range(MARKS)]
        self._asked = 0
        self._failures = 0
        self._state = IDLE
        self.verdict = IN_DOUBT  # RESUMED or OTHER once the broker has answered, see `device.mqtt.states`

    @property
    def can_ask(self) -> bool:
        """Whether there is no verdict yet and the broker can be asked for one."""
        return self.verdict == IN_DOUBT and self._failures < FAILURES_MAX and self.is_granted

    @property
    def is_granted(self) -> bool:
        """Whether the broker has granted the marks for this session, in this boot or an earlier one."""
        return read_setting(self._log, SESSION_PROBE) == self._name

    def take_filters(self) -> list:
        """Returns the marks as (topic filter, options), to be sent with the next SUBSCRIBE."""
        if self._failures >= FAILURES_MAX:
            return []
        self._state = SUBSCRIBING
        return [(topic_filter, 0) for topic_filter in self._filters]

    def ask(self, connection) -> None:
        """Starts to ask for the marks, one UNSUBSCRIBE after the other; `hear` takes the UNSUBACKs."""
        self._asked = 0
        self._state = ASKING
        connection.unsubscribe(self._filters[:1])

    def hear(self, answer, connection) -> bool:
        """Takes a SUBACK, or an UNSUBACK while it is asking; returns whether `verdict` is now known."""
        if self._state != ASKING:
            self._state = IDLE
            self._failures = 0
            if answer.TYPE == SUBACK and len(answer.reason_codes) > MARKS:
                self._note(max(answer.reason_codes[-MARKS:]) < UNSPECIFIED_ERROR)
            return False
        self._asked += 1
        is_missing = answer.reason_codes[0] == NO_SUBSCRIPTION_EXISTED
        if is_missing and self._asked < MARKS:
            connection.unsubscribe([self._filters[self._asked]])
            return False
        self.verdict = OTHER if is_missing else RESUMED
        if not is_missing:  # set the mark again at once: repeated power cuts would otherwise use up all marks
            connection.subscribe([(topic_filter, 0) for topic_filter in self._filters])
        self._state = IDLE
        return True

    def _note(self, is_granted: bool) -> None:
        try:
            if not is_granted:
                self._log.settings.remove(SESSION_PROBE)
            elif not self.is_granted:
                self._log.settings.set(SESSION_PROBE, self._name)
        except (StoreFull, MessageTooLarge):
            pass  # the next SUBACK notes it

    def detach(self) -> None:
        """The connection is lost."""
        self._failures += self._state != IDLE
        self._state = IDLE
        self.verdict = IN_DOUBT
