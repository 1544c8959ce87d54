"""Joins one of the device's Wi-Fi networks, trying them in their order, and joins again when the connection is lost.

The radio is off until the first `advance`, and after `close`. Only two operations of the radio block, for seconds: to
switch it on, and to scan for a network that comes before the joined one in the list.
"""

import network

LOOK_MS = 250
RADIO_MS = 20_000  # the longest time that the radio may take to be switched on, or to scan for networks
PAUSE_MS = 500  # from `disconnect` to the next attempt: it goes on for a moment, and the radio refuses others meanwhile
DEAF_MS, DEAF_LONGEST_MS = (
    300_000,
    4_800_000,
)  # without a broker, before a network that says it is joined is joined anew
JOIN_MS = 15_000  # after this time an attempt is given up, and the next one begins
HOME_MS = 600_000  # time between two scans for a network that comes before the joined one
REASONS = (
    ("STAT_WRONG_PASSWORD", "wrong password"),
    ("STAT_NO_AP_FOUND", "not found"),
    ("STAT_CONNECT_FAIL", "refused"),
    ("STAT_NO_AP_FOUND_IN_AUTHMODE_THRESHOLD", "not found with a protection that is safe enough"),
)


class Wifi:
    """`is_up` tells whether there is an address, as of the last `advance`.

    `advance` raises OSError if the radio does not work.

    Args:
        networks: each with `ssid`, `password` (None: the network is open) and `address`: a tuple of IPv4 address,
            netmask, gateway and name server, or None for DHCP.
        host_name: the name that the device announces to the network, or None.
        country: two letters, by which the radio knows the channels that it may use, or None.
        say: called with each line of text for the console and the log.
        watchdog: see `device.boards`.
    """

    def __init__(self, networks: list, host_name: str | None, say, watchdog, country: str | None = None) -> None:
        self._networks = networks
        self._number = 0  # the index of the network that is tried or joined
        self._say = say
        self._host_name = host_name
        self._country = country
        self._watchdog = watchdog
        self._is_on = False
        self._look_ms = 0
        self._give_up_ms: int | None = None  # when to give the attempt up
        self._has_tried = False  # whether to join, since the radio is on
        self._connect_ms: int | None = None  # when the pause after `disconnect` is over
        self._home_ms = 0
        self._deaf_ms = 0  # when to join anew, unless a broker answers
        self._wait_ms = DEAF_MS
        self._said: list = [""] * len(networks)
        self.is_up = False

    def advance(self, now_ms: int) -> None:
        """Checks the connection, a few times a second at most, and joins a network if there is none."""
        if now_ms < self._look_ms:
            return
        self._look_ms = now_ms + LOOK_MS
        if not self._is_on:
            self._switch_on()
        if self._connect_ms is not None:
            if now_ms >= self._connect_ms:
                self._connect(now_ms)
            return
        if self._station.isconnected() and self._stays(now_ms):
            return
        if self.is_up:
            self._tell("lost")
            self._number = 0
        self.is_up = False
        if self._give_up_ms is None or now_ms >= self._give_up_ms:
            self._join(now_ms)

    def hear(self, now_ms: int) -> None:
        """A broker answers: the network works."""
        self._wait_ms = DEAF_MS
        self._deaf_ms = now_ms + DEAF_MS

    def next_timer_ms(self) -> int:
        """When `advance` wants to be called."""
        return self._look_ms

    def close(self) -> None:
        """Switches the radio off."""
        if self._is_on:
            self._station.active(False)
        self._is_on = self.is_up = self._has_tried = False
        self._give_up_ms = self._connect_ms = None

    def _switch_on(self) -> None:
        if self._country is not None:
            network.country(self._country)
        if self._host_name is not None:
            network.hostname(self._host_name)
        self._watchdog.lengthen(RADIO_MS)
        try:
            self._station = network.WLAN(network.STA_IF)
            self._station.active(True)
        finally:
            self._watchdog.shorten()
        self._is_on = True

    def _stays(self, now_ms: int) -> bool:
        """Returns whether to stay in the network that is joined."""
        if not self.is_up:
            self._tell(f"joined, address {self._station.ifconfig()[0]}")
            self._home_ms = now_ms + HOME_MS
            self._deaf_ms = now_ms + self._wait_ms
        self.is_up, self._give_up_ms = True, None
        if now_ms >= self._deaf_ms:  # the radio may go on saying so after the access point has forgotten it
            self._tell("is joined, but no broker answers: it is joined anew")
            self._wait_ms = min(2 * self._wait_ms, DEAF_LONGEST_MS)
            self._number = (self._number + 1) % len(self._networks)
            self.is_up = False
            return False
        if not self._number or now_ms < self._home_ms:
            return True
        self._home_ms = now_ms + HOME_MS
        return not self._sees_earlier()

    def _sees_earlier(self) -> bool:
        """Scans; returns whether a network is in reach that comes before the joined one."""
        earlier = [one.ssid.encode() for one in self._networks[: self._number]]
        self._watchdog.lengthen(RADIO_MS)
        try:
            return any(found[0] in earlier for found in self._station.scan())
        except OSError:
            return False
        finally:
            self._watchdog.shorten()

    def _join(self, now_ms: int) -> None:
        """Begins the next attempt. After another one it disconnects first: the radio refuses a second one meanwhile."""
        if self._give_up_ms is not None:
            self._tell(f"cannot be joined: {self._reason()}; attempts go on")
            self._number = (self._number + 1) % len(self._networks)
        if not self._has_tried:
            self._connect(now_ms)
            return
        self._connect_ms = now_ms + PAUSE_MS
        try:
            self._station.disconnect()
        except OSError:
            pass  # there was nothing to leave

    def _connect(self, now_ms: int) -> None:
        self._connect_ms = None
        self._has_tried = True
        self._give_up_ms = now_ms + JOIN_MS
        chosen = self._networks[self._number]
        try:
            if any(one.address for one in self._networks):
                self._station.ifconfig(chosen.address or "dhcp")  # type: ignore[arg-type, unused-ignore]
            self._station.connect(*[chosen.ssid, chosen.password][: 1 + (chosen.password is not None)])
        except OSError as error:
            self._tell(f"cannot be joined: {error}; attempts go on")

    def _reason(self) -> str:
        status = self._station.status()
        for name, text in REASONS:
            if status == getattr(network, name, None):
                return text
        return f"no answer in {JOIN_MS // 1000} s"

    def _tell(self, text: str) -> None:
        if text != self._said[self._number]:
            self._said[self._number] = text
            self._say(f"Wi-Fi {self._networks[self._number].ssid} {text}")
