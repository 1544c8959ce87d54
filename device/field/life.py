"""What a device has of `device.field`, as one object that the device's loop calls."""

from device.mqtt.settings import PLACE, read_setting
from device.values import ConfigError
from flash_store.errors import StoreError

EXPECTED = "expected identify, interval, log, move, report, restart or set_aside"


class Life:
    """`is_on_trial`: this start tries another network or broker, by the command `move`.

    Args:
        config: the device's configuration.
        board: a board module of `device.boards`.
        uptime: has `now_ms`.

    Raises ConfigError if the board has no such button, or no Wi-Fi to be told of.
    """

    def __init__(self, config, board, uptime) -> None:
        self._config = config
        self._board = board
        self._uptime = uptime
        self._battery = self._button = self._ring = None
        self._move: list = []  # the `device.field.move.Move` that is outstanding
        self._is_moved = False
        if config.field is not None:
            if config.field.improv and board.Network is None:
                raise ConfigError(f"field.improv is true, expected false: {board.NAME} has no Wi-Fi to join")
            self._battery = config.field.battery
            self._button = None if config.field.button is None else _make_button(config.field.button, board)
            if config.field.log_bytes is not None:
                from device.field.log_ring import LogRing

                self._ring = LogRing(config.field.log_bytes)

    @property
    def is_on_trial(self) -> bool:
        return bool(self._move) and self._move[0].place.is_trial

    @property
    def is_moving(self) -> bool:
        """Whether a move is on trial, or will be from the next start on."""
        return bool(self._move) and self._move[0].place.is_open

    def begin(self, device, watchdog):
        """Puts the networks and ports of a move into the configuration, once the store is open.

        Returns the watchdog to use: in a trial a board has one, also if its configuration wants none.
        """
        if read_setting(device.log, PLACE) is None:
            return watchdog
        from device import memory
        from device.field.move import TrialWatchdog, begin

        move = begin(device)
        self._is_moved = move.place.is_moved and not move.place.is_trial
        if move.place.is_pending:
            self._move.append(move)
        if self.is_on_trial:
            if self._board.Watchdog is not None and self._config.watchdog_ms is None:
                self._config.watchdog_ms = self._board.WATCHDOG_MS_MAX
                watchdog = self._board.Watchdog(self._config.watchdog_ms)
            watchdog = TrialWatchdog(watchdog, move, self._uptime)
        if not self._move:
            del begin, TrialWatchdog, move
            memory.leave("device.field.move", "device.field.place")
        return watchdog

    def say(self, text: str) -> None:
        """Keeps a line of the log."""
        if self._ring is not None:
            self._ring.add(text, self._uptime.now_ms())

    def facts(self) -> dict:
        """Returns what status messages and `identify` tell in addition."""
        facts: dict = {}
        if self._battery is not None:
            facts["battery_v"] = self._volts()
        if self._is_moved:
            facts["moved"] = True
        return facts

    def sample(self) -> list:
        """Returns the readings for a report of the device's health, as (name, unit, value)."""
        volts = None if self._battery is None else self._volts()
        return [] if volts is None else [("health.battery", "V", volts)]

    def advance(self, device, session, now_ms: int) -> bool:
        """Looks at the button and at a move; returns whether the device has to start anew at once."""
        if self._button is not None and self._button.is_held(now_ms) and _reset(device):
            return True
        return bool(self._move) and self._move[0].advance(device, session, now_ms)

    def next_timer_ms(self) -> int | None:
        """When `advance` wants to be called at the latest."""
        timers = [part.next_timer_ms() for part in self._move + [self._button] if part is not None]
        return min([timer_ms for timer_ms in timers if timer_ms is not None], default=None)

    def move(self, device, told: dict, payload: bytes, is_once: bool) -> dict | None:
        """Carries out the command `move`; returns None as long as its answer is not known."""
        if not self._move:
            from device.field.move import make

            self._move.append(make(device))
        answer = self._move[0].answer(payload, told, is_once)
        if answer is None and not self.is_on_trial:
            device.wants_restart = True
        return answer

    def network_of(self, device, network, watchdog):
        """Returns the network that a device joins, which listens on the console where the configuration wants that."""
        if device.config.field is None or not device.config.field.improv:
            return network
        from device.field.console import Console
        from device.field.told_network import ToldNetwork

        return ToldNetwork(device, network, watchdog, Console())

    def adopt(self, device, keys: dict) -> None:
        """Makes `network`, `port` or both the device's own at once. Raises StoreError. Not while `is_moving`."""
        from device import memory

        if not self._move:
            from device.field.move import make

            self._move.append(make(device))
        place = self._move[0].place
        place.adopt(keys)
        self._is_moved = True
        if not place.is_pending:
            self._move.clear()
            del place
            memory.leave("device.field.move", "device.field.place")

    def lines(self, device, after) -> dict:
        """Carries out the command `log`: returns the lines behind a number, as many as fit into an answer."""
        if self._ring is None:
            return {"error": "its configuration has no field.log_bytes"}
        if type(after) is not int or after < 0:
            return {"error": "expected after, the number of a line, or 0"}
        answer = {"boot": device.log.boot_id}
        answer.update(self._ring.lines(after))
        return answer

    def _volts(self) -> float | None:
        from device.field.battery import read_volts

        return read_volts(self._battery)


def act(device, told: dict, payload: bytes, is_once: bool) -> dict | None:
    """Carries out a command for a device that may have no `Life` yet; see `device.mqtt.commands.Commands.act`."""
    if told["command"] not in ("log", "move"):
        return {"error": EXPECTED}
    if device.field is None:
        device.field = Life(device.config, device.board, device.uptime)
    if told["command"] == "log":
        return device.field.lines(device, told.get("after", 0))
    return device.field.move(device, told, payload, is_once)


def _make_button(config, board):
    try:
        from device.field.button import Button

        return Button(config.pin, config.hold_s)
    except (ImportError, ValueError):
        raise ConfigError(f"field.button.pin is {config.pin}, expected a pin that {board.NAME} has")


def _reset(device) -> bool:
    """Goes back to the file: forgets what commands have changed. Returns False if the store has no room."""
    from device.field.place import reset

    try:
        reset(device.log)
    except StoreError as error:
        device.say(f"the button cannot reset the device: {error}")
        return False
    device.say("the button has reset the device to its file; its messages are kept")
    return True
