"""Whether the session that a broker has is the one that the device knows: for devices that subscribe, over MQTT 5.

A broker that has lost the session makes a new one with the next CONNECT. Where the CONNACK that says so is lost, or the
power goes before what it means is noted, the next CONNACK says Session Present like any other, and what had its PUBREC
in the old session would count as released. So a session has marks, subscriptions to topics at which nobody publishes,
and where it is in doubt an UNSUBSCRIBE asks for one. That takes it away, so there are some, and each SUBSCRIBE sets all
of them anew. Only a broker that has granted them is asked, which a setting of the store says.
"""

import binascii

from device.noted import SESSION_MARK, read_setting
from flash_store.errors import MessageTooLarge, StoreFull
from wire.packet_types import SUBACK
from wire.reasons import NO_SUBSCRIPTION_EXISTED, UNSPECIFIED_ERROR

MARKS = 4
FAILURES_MAX = 3  # of a broker that ends the connection over such a subscription; then it is done without


class SessionMark:
    """Args:
    log: the device's `flash_store.log.Log`.
    client_id, topic: of the device; the marks are below its topic.
    """

    def __init__(self, log, client_id: str, topic: str) -> None:
        self._log = log
        self._name = binascii.crc32(f"{client_id} {topic}".encode()).to_bytes(4, "little")
        self._filters = [f"{topic}/session/{number}" for number in range(MARKS)]
        self._asked = 0
        self._failures = 0
        self._awaits_answer = False
        self.is_asking = False
        self.verdict: bool | None = None  # whether the session is the known one, where it was asked for

    @property
    def is_of_use(self) -> bool:
        return self._failures < FAILURES_MAX

    @property
    def is_granted(self) -> bool:
        """Whether this session has them, since this boot or an earlier one."""
        return read_setting(self._log, SESSION_MARK) == self._name

    def take_filters(self) -> list:
        """What goes into a SUBSCRIBE for the marks, as (topic filter, options)."""
        if not self.is_of_use:
            return []
        self._awaits_answer = True
        return [(topic_filter, 0) for topic_filter in self._filters]

    def ask(self, connection) -> None:
        """An UNSUBACK answers, maybe one of several."""
        self._asked = 0
        self.is_asking = self._awaits_answer = True
        connection.unsubscribe(self._filters[:1])

    def hear(self, answer, connection) -> bool:
        """A SUBACK, or an UNSUBACK while it is asking; returns whether that has led to a `verdict`."""
        if not self.is_asking:
            self._awaits_answer = False
            self._failures = 0
            if answer.TYPE == SUBACK and len(answer.reason_codes) > MARKS:
                self._note(max(answer.reason_codes[-MARKS:]) < UNSPECIFIED_ERROR)
            return False
        self._asked += 1
        is_missing = answer.reason_codes[0] == NO_SUBSCRIPTION_EXISTED
        if is_missing and self._asked < MARKS:
            connection.unsubscribe([self._filters[self._asked]])
            return False
        self.verdict = not is_missing
        if self.verdict:  # at once: cut after cut, the questions would use the marks up
            connection.subscribe([(topic_filter, 0) for topic_filter in self._filters])
        self.is_asking = self._awaits_answer = False
        return True

    def _note(self, is_granted: bool) -> None:
        try:
            if not is_granted:
                self._log.settings.remove(SESSION_MARK)
            elif not self.is_granted:
                self._log.settings.set(SESSION_MARK, self._name)
        except (StoreFull, MessageTooLarge):
            pass  # with the next SUBACK, then

    def detach(self) -> None:
        """The connection is lost."""
        self._failures += self._awaits_answer
        self.is_asking = self._awaits_answer = False
        self.verdict = None
