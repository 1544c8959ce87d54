"""A Wi-Fi that is joined, and joined again whenever it is gone. Nothing here waits."""

import network

LOOK_MS = 250
JOIN_MS = 15_000  # then an attempt is given up for a fresh one
REASONS = (
    ("STAT_WRONG_PASSWORD", "wrong password"),
    ("STAT_NO_AP_FOUND", "not found"),
    ("STAT_CONNECT_FAIL", "refused"),
    ("STAT_NO_AP_FOUND_IN_AUTHMODE_THRESHOLD", "not found with a protection that is safe enough"),
)


class Wifi:
    """`is_up` tells whether there is an address, as of the last `advance`.

    Args:
        say: called with each line for people.
    """

    def __init__(self, ssid: str, password: str, say) -> None:
        self._ssid, self._password = ssid, password
        self._say = say
        self._station = network.WLAN(network.STA_IF)
        self._station.active(True)
        self._look_ms = 0
        self._give_up_ms: int | None = None  # of the attempt
        self._said = ""
        self.is_up = False

    def advance(self, now_ms: int) -> None:
        """Looks at the link, a few times a second at most."""
        if now_ms < self._look_ms:
            return
        self._look_ms = now_ms + LOOK_MS
        if self._station.isconnected():
            if not self.is_up:
                self._tell(f"joined, address {self._station.ifconfig()[0]}")
            self.is_up, self._give_up_ms = True, None
            return
        if self.is_up:
            self._tell("lost")
        self.is_up = False
        if self._give_up_ms is None or now_ms >= self._give_up_ms:
            self._join(now_ms)

    def next_timer_ms(self) -> int:
        """When `advance` wants to be called."""
        return self._look_ms

    def _join(self, now_ms: int) -> None:
        """Begins an attempt, or the next one; a station that is still at the last one would refuse it."""
        if self._give_up_ms is not None:
            self._tell(f"cannot be joined: {self._reason()}; attempts go on")
        self._give_up_ms = now_ms + JOIN_MS
        try:
            self._station.disconnect()
            self._station.connect(self._ssid, self._password)
        except OSError as error:
            self._tell(f"cannot be joined: {error}; attempts go on")

    def _reason(self) -> str:
        status = self._station.status()
        for name, text in REASONS:
            if status == getattr(network, name, None):
                return text
        return f"no answer in {JOIN_MS // 1000} s"

    def _tell(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._say(f"Wi-Fi {self._ssid} {text}")
