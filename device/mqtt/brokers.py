"""The brokers of a device, in the order in which it tries them. It uses the first one that accepts its connection.

After a failed attempt the device tries the next broker. After it has lost a connection, it begins with the first broker
again; while it is connected to another one, it tries the first from time to time.

Each broker has a session of its own. When the device returns to a broker after it has used another one, the old session
is stale: the messages that it had not released went to the other broker meanwhile, and their packet identifiers belong
to newer messages. So the device begins a new session (Clean Start).
"""

from binascii import crc32

from device.mqtt.settings import BROKER, SCRAM, read_setting
from flash_store.errors import MessageTooLarge, StoreFull

HOME_SHORTEST_MS, HOME_LONGEST_MS = 600_000, 9_600_000  # time between two attempts to return to the first broker


class Brokers:
    """The list of brokers. `port` (see `device.ports`) and `scram` belong to the broker whose turn it is; `scram` is
    its `device.mqtt.scram.Scram`, None if the device logs in with a plain password, or without a login.

    Args:
        configs: one for each broker.
        make_port: called with a config; returns the port.
        log: the device's `flash_store.log.Log`.
        say: called with each line of text for the console and the log.
    """

    def __init__(self, configs: list, make_port, log, say) -> None:
        self._configs = configs
        self._make_port = make_port
        self._log = log
        self._say = say
        self._home_ms: int | None = None  # when to try the first broker again
        self._wait_ms = HOME_SHORTEST_MS
        self._last = read_setting(log, BROKER)  # the broker of the last session
        self._turn_to(0)

    def _turn_to(self, number: int) -> None:
        self._number = number
        config = self._configs[number]
        self.port = self._make_port(config)
        self.scram = None
        if config.is_scram:
            from device.mqtt.scram import Scram  # loaded only here: most devices do not use it

            self.scram = Scram(config.user, config.password, self._log, SCRAM + str(number), self._say)

    @property
    def login(self) -> tuple:
        """The user name and the password for the CONNECT, or None for each."""
        config = self._configs[self._number]
        return (None, None) if self.scram else (config.user, config.password and config.password.encode())

    @property
    def is_deriving(self) -> bool:
        """Whether the keys of the login must be derived before the next attempt."""
        return self.scram is not None and self.scram.is_deriving

    def authentication(self):
        """Returns the `ClientAuthentication` of the next connection; None unless the device logs in with SCRAM."""
        if self.scram is None:
            return None
        from device.mqtt.scram import METHOD
        from wire.connection.authentication import ClientAuthentication

        return ClientAuthentication(METHOD, self.scram.respond)

    @property
    def is_other(self) -> bool:
        """Whether the device's last session was with another broker, or may have been."""
        if self._last is None:
            return len(self._configs) > 1
        return self._last != self._name()

    def note(self) -> None:
        """Notes that the session is with this broker now. A full store loses the note at the next start."""
        if self._last == self._name():
            return
        self._last = self._name()
        try:
            self._log.settings.set(BROKER, self._last)
        except (StoreFull, MessageTooLarge):
            pass

    def _name(self) -> bytes:
        return crc32(self.port.name.encode()).to_bytes(4, "little")

    def accept(self, now_ms: int) -> None:
        """The broker has accepted the connection."""
        if self._number:
            self._home_ms = now_ms + self._wait_ms
            self._wait_ms = min(2 * self._wait_ms, HOME_LONGEST_MS)
        else:
            self._wait_ms = HOME_SHORTEST_MS

    def is_due_home(self, now_ms: int) -> bool:
        """Whether it is time to try the first broker again."""
        return self._home_ms is not None and now_ms >= self._home_ms

    def next_timer_ms(self) -> int | None:
        """When `is_due_home` turns true."""
        return self._home_ms

    def lose(self, was_accepted: bool) -> None:
        """The connection is lost, or the attempt failed; the port is closed."""
        self._home_ms = None
        number = 0 if was_accepted else (self._number + 1) % len(self._configs)
        if number != self._number:
            self._turn_to(number)
