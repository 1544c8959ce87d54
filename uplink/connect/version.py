"""Which version of MQTT a server speaks, as far as its answers tell."""

from wire.codec.packets import MQTT_3_1_1, MQTT_5

MQTT_5_AGAIN_S = 3600.0  # after it a server that spoke MQTT 3.1.1 is asked for MQTT 5 again
UNANSWERED_MOST = 2  # CONNECTs of MQTT 5 in a row that a server closes on, until 3.1.1 is tried


class SpokenVersion:
    """What is known of one server. Times are the event loop's, in seconds.

    Args:
        needs_5: whether MQTT 3.1.1 is of no use to the route, so that each CONNECT is one of MQTT 5 first.
    """

    def __init__(self, *, needs_5: bool = False) -> None:
        self._needs_5 = needs_5
        self._level = MQTT_5
        self._again_s = 0.0  # when MQTT 5 is tried again
        self._has_spoken_5 = False
        self._unanswered = 0  # CONNECTs of MQTT 5 in a row

    def tries_5(self, now_s: float) -> bool:
        """Whether the next CONNECT is one of MQTT 5."""
        return self._needs_5 or self._level == MQTT_5 or now_s >= self._again_s

    def may_speak_3_1_1(self, *, says_so: bool) -> bool:
        """Notes that a CONNECT of MQTT 5 failed; returns whether one of 3.1.1 may be accepted.

        A server of MQTT 3.1.1 may just close the connection. So may one that fails for a moment; if it has spoken
        MQTT 5 before, it is not asked for less.

        Args:
            says_so: whether the server has refused the version, and not just closed.
        """
        self._unanswered += 1
        return says_so or (self._unanswered >= UNANSWERED_MOST and not self._has_spoken_5)

    def note_5(self) -> None:
        """It has accepted a CONNECT of MQTT 5."""
        self._level, self._has_spoken_5, self._unanswered = MQTT_5, True, 0

    def note_3_1_1(self, now_s: float) -> bool:
        """It has accepted a CONNECT of MQTT 3.1.1; returns whether that is news."""
        is_news = self._level == MQTT_5
        if is_news or now_s >= self._again_s:
            self._again_s = now_s + MQTT_5_AGAIN_S
        self._level = MQTT_3_1_1
        return is_news

    def note_not_3_1_1(self) -> None:
        """It has refused MQTT 3.1.1."""
        self._level = MQTT_5
