"""The network of a device that is told its Wi-Fi over its console (the key `field.improv`)."""

from device import memory

LOOK_MS, BUSY_LOOK_MS = 100, 20  # between two looks at the console; a board's own buffer has some 260 bytes
READ_BYTES = 128  # at a look, at most
FIRST = b"I"  # of a packet


class ToldNetwork:
    """Joins `network`, which may be None, and listens on the console. What it is told is in `device.field.setup`, which
    it loads when a packet may begin there, and drops when the conversation is over.

    Args:
        device: `device.device.Device`.
        network: `board.Network`; None: the device knows of no network yet.
        watchdog: see `device.boards`.
        console: `device.field.console.Console`.
        scan: see `device.boards.radio.scan`.
    """

    def __init__(self, device, network, watchdog, console, scan=None) -> None:
        self.network = network
        self.watchdog = watchdog
        self.console = console
        self.scan = scan or _scan
        self.is_up = False
        self._device = device
        self._setup: list = []  # the `device.field.setup.Setup` during a conversation
        self._rests = False
        self._look_ms = 0
        if network is None:
            device.say("no Wi-Fi: it waits to be told one over its console, by Improv")

    def advance(self, now_ms: int) -> None:
        """Looks at the console, and joins the network, unless the radio is needed for what the console asks."""
        if now_ms >= self._look_ms:
            self._look(now_ms)
        self._rests = bool(self._setup) and self._setup[0].needs_radio(now_ms)
        if self._rests:
            self.is_up = False
            return
        if self.network is not None:
            self.network.advance(now_ms)
        self.is_up = self.network is not None and self.network.is_up

    def hear(self, now_ms: int) -> None:
        if self.network is not None:
            self.network.hear(now_ms)

    def next_timer_ms(self) -> int:
        if self.network is None or self._rests:
            return self._look_ms
        return min(self._look_ms, self.network.next_timer_ms())

    def close(self) -> None:
        if self._setup:
            self._setup[0].close()
        if self.network is not None:
            self.network.close()
        self.console.close()
        self.is_up = False

    def _look(self, now_ms: int) -> None:
        data = self.console.read(READ_BYTES, now_ms)
        if FIRST in data and not self._setup:
            self._load(now_ms)
        if self._setup and not self._setup[0].advance(data, now_ms):
            self._setup.pop().close()
            memory.leave("device.field.setup", "device.field.improv")
        self._look_ms = now_ms + (BUSY_LOOK_MS if self._setup else LOOK_MS)

    def _load(self, now_ms: int) -> None:
        try:
            from device.field.setup import Setup

            self._setup.append(Setup(self._device, self, now_ms))
        except MemoryError:
            self._device.say("Improv: there is no memory for it")


def _scan(watchdog) -> list:
    from device.boards.radio import scan

    found = scan(watchdog)
    del scan
    memory.leave("device.boards.radio")
    return found
