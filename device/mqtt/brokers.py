"""The brokers of a device, in the order in which it tries them: the first that accepts it is the one it talks to.

Where an attempt comes to nothing the next one is for the next broker; where a connection is lost they begin with the
first, and a device that is connected to another one looks for the first from time to time.

Each broker has a session of its own. That of a broker which comes again after another one is a stale one: what it has
not released was sent to the other broker meanwhile, and the packet identifiers went on. So it is begun anew.
"""

import binascii

from device.noted import BROKER, SCRAM, read_setting
from flash_store.errors import MessageTooLarge, StoreFull

HOME_SHORTEST_MS, HOME_LONGEST_MS = 600_000, 9_600_000  # from one look for the first broker to the next


class Brokers:
    """`port` and `config` (see `device.ports`, and `port` of `device.config`) are those of the broker whose turn it is.

    Args:
        configs: one for each broker.
        make_port: called with a config; returns the port.
        log: the device's `flash_store.log.Log`.
    """

    def __init__(self, configs: list, make_port, log) -> None:
        self._configs = configs
        self._make_port = make_port
        self._log = log
        self._home_ms: int | None = None  # then the first broker is looked for
        self._wait_ms = HOME_SHORTEST_MS
        self._last = read_setting(log, BROKER)  # the broker of the last session
        self._turn_to(0)

    def _turn_to(self, number: int) -> None:
        self._number = number
        self.config = self._configs[number]
        self.port = self._make_port(self.config)

    def make_scram(self, say):
        """`device.scram.Scram` of a broker at which the device logs in by it, else None."""
        if not self.config.is_scram:
            return None
        from device.scram import Scram  # most devices do without

        return Scram(self.config.user, self.config.password, self._log, SCRAM + str(self._number), say)

    @property
    def login(self) -> tuple:
        """User's name and password, or None for each."""
        password = self.config.password
        return self.config.user, password and password.encode()

    @property
    def is_other(self) -> bool:
        """Whether the last session was another broker's, or may have been."""
        if self._last is None:
            return len(self._configs) > 1
        return self._last != self._name()

    def note(self) -> None:
        """The session is this broker's now. Where there is no room for that, only until the next start."""
        if self._last == self._name():
            return
        self._last = self._name()
        try:
            self._log.settings.set(BROKER, self._last)
        except (StoreFull, MessageTooLarge):
            pass

    def _name(self) -> bytes:
        return binascii.crc32(self.port.name.encode()).to_bytes(4, "little")

    def accept(self, now_ms: int) -> None:
        """It has accepted the connection."""
        if self._number:
            self._home_ms = now_ms + self._wait_ms
            self._wait_ms = min(2 * self._wait_ms, HOME_LONGEST_MS)
        else:
            self._wait_ms = HOME_SHORTEST_MS

    def is_due_home(self, now_ms: int) -> bool:
        """Whether it is time to look for the first broker."""
        return self._home_ms is not None and now_ms >= self._home_ms

    def next_timer_ms(self) -> int | None:
        """When `is_due_home` turns true."""
        return self._home_ms

    def lose(self, was_accepted: bool) -> None:
        """The connection is lost, or did not come about; the port is closed."""
        self._home_ms = None
        number = 0 if was_accepted else (self._number + 1) % len(self._configs)
        if number != self._number:
            self._turn_to(number)
