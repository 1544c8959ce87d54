"""The rhythm of each device: how long it usually pauses between messages, and whether it is silent for longer.

The usual pause is the second longest one: a single outage does not make a longer pause usual. What was usual fades,
by half in FADES_IN usual pauses, so that a device that now sends more often is missed earlier.
"""

from collections.abc import Mapping

from gateway.sessions.devices import Heard

PAUSES_LEAST = 3  # until a rhythm is known
TIMES = 3.0  # as long as the usual pause is unusually long
SILENT_LEAST_S = 30.0  # a shorter silence is none
FADES_IN = 30.0  # usual pauses


class Rhythm:
    """The rhythm of one device.

    ``last_ms`` is when it last sent a message (Unix time, 0: not since the start), ``usual_s`` its usual pause, 0.0
    while that is not known.
    """

    __slots__ = ("_longest_s", "_pauses", "_second_s", "last_ms")

    def __init__(self) -> None:
        self.last_ms = 0
        self._longest_s = self._second_s = 0.0
        self._pauses = 0

    def hear(self, at_ms: int) -> None:
        """Notes that the newest message came at a Unix time. Messages between two calls count as one."""
        pause_s, self.last_ms = (at_ms - self.last_ms) / 1000 if self.last_ms else 0.0, at_ms
        if pause_s <= 0.0:  # the first message, or the clock was set back
            return
        self._pauses += 1
        if self._second_s:
            kept = 0.5 ** min(1.0, pause_s / (FADES_IN * self._second_s))
            self._longest_s, self._second_s = self._longest_s * kept, self._second_s * kept
        if pause_s >= self._longest_s:
            self._longest_s, self._second_s = pause_s, self._longest_s
        elif pause_s > self._second_s:
            self._second_s = pause_s

    @property
    def usual_s(self) -> float:
        """The usual pause between two messages; 0.0 while it is not known."""
        return self._second_s if self._pauses >= PAUSES_LEAST else 0.0

    def is_silent(self, now_ms: int) -> bool:
        """Whether the device is silent for longer than is usual for it; False while its rhythm is not known."""
        usual_s = self.usual_s
        return usual_s > 0.0 and now_ms - self.last_ms > 1000 * max(SILENT_LEAST_S, TIMES * usual_s)


class Rhythms:
    """The rhythms of all devices, by client identifier."""

    def __init__(self) -> None:
        self._rhythms: dict[str, Rhythm] = {}

    def look(self, heard: Mapping[str, Heard]) -> None:
        """Looks which devices have sent messages since the last look."""
        rhythms = self._rhythms
        for client_id, one in heard.items():
            if at_ms := one.at_ms:
                rhythm = rhythms.get(client_id)
                if rhythm is None:
                    rhythm = rhythms[client_id] = Rhythm()
                if rhythm.last_ms != at_ms:
                    rhythm.hear(at_ms)

    def forget(self, heard: Mapping[str, Heard]) -> None:
        """Forgets the devices that are not there any more."""
        if len(self._rhythms) > len(heard):
            for client_id in self._rhythms.keys() - heard.keys():
                del self._rhythms[client_id]

    def get(self, client_id: str) -> Rhythm | None:
        """Returns a device's rhythm; None if it has sent nothing since the start."""
        return self._rhythms.get(client_id)
