"""The device's subscription to the topic filter that its configuration names.

The filter is noted in a setting. If a broker still has the filter of an older configuration, the device unsubscribes
from it; messages that arrive by the old filter are acknowledged and ignored.
"""

from device.mqtt.settings import read_setting
from wire.codec import MQTT_5
from wire.codec.subscribe import NO_LOCAL, RETAIN_NEVER
from wire.errors import WireError
from wire.packet_types import UNSUBACK
from wire.reasons import UNSPECIFIED_ERROR
from wire.topics import parse_shared

KEY = "commands"  # of the setting


class Subscription:
    """Subscribes once for each connection. `own_filter` is the filter without the share's name. `is_granted`: the
    broker of this connection has granted it.

    Args:
        topic_filter: the configured filter.
        log: the device's `flash_store.log.Log`.
        say: called with each line of text for the console and the log.
    """

    def __init__(self, topic_filter: str, log, say) -> None:
        self.topic_filter = topic_filter
        self.own_filter = parse_shared(topic_filter)[1]
        self.is_granted = False
        self._log = log
        self._say = say
        self._marks: list = []
        self._is_due = False
        self._may_hold_other = False  # whether the broker may have the subscription of an older configuration

    def begin(self, session_present: bool, marks: list) -> None:
        """There is a new connection.

        Args:
            marks: topic filters to subscribe to as well, see `device.mqtt.session_probe`.
        """
        self._marks = marks
        self.is_granted = False
        self._is_due = True
        self._may_hold_other = session_present

    def advance(self, connection) -> None:
        """Subscribes, after the filter is noted in flash and an older filter is unsubscribed. Raises StoreFull."""
        if connection is None or not self._is_due:
            return
        wanted, noted = self.topic_filter.encode(), read_setting(self._log, KEY)
        if self._may_hold_other and noted is not None and noted != wanted:
            connection.unsubscribe([str(noted, "utf-8")])
            self._is_due = False
            return
        if noted != wanted:
            self._log.settings.set(KEY, wanted)
        self._is_due = False
        options = 2
        if connection.protocol_level == MQTT_5:
            options |= RETAIN_NEVER | (NO_LOCAL if self.own_filter == self.topic_filter else 0)  # [MQTT-3.8.3-4]
        try:
            connection.subscribe([(self.topic_filter, options)] + self._marks)
        except WireError as error:
            self._say(f"no messages from {self.topic_filter}: {error}")

    def handle_answer(self, answer) -> None:
        """Takes a SUBACK or UNSUBACK."""
        if answer.TYPE == UNSUBACK:
            self._may_hold_other = False
            self._is_due = True
        elif answer.reason_codes[0] >= UNSPECIFIED_ERROR:
            self._say(f"no messages from {self.topic_filter}: the broker refuses the subscription")
        else:
            self.is_granted = True
