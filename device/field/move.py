"""The command `move`: it changes the Wi-Fi or the broker of a device that is out of a cable's reach.

    {"command": "move", "network": …, "port": …, "deadline_s": 300}

A move is on trial until three facts are there: the broker of the new place has accepted the connection, it has granted
the subscription by which the next command will come, and it has acknowledged a message. Two thirds of the deadline are
for that, the last third for the way back. The command is answered when it is known how the move has ended.
"""

import os

from device.field.place import Place, base_of
from device.values import ConfigError
from flash_store.errors import StoreError
from wire.codec import MQTT_5

DEADLINE_S, DEADLINE_S_MIN, DEADLINE_S_MAX = 300, 10, 3600
TRIAL_SHARE = 2, 3  # of the deadline: numerator, denominator
OWN_KEYS = ("command", "correlation", "deadline_s")


class Move:
    """The moves of one start of the device.

    Args:
        place: `device.field.place.Place`.
        device: `device.device.Device`.
    """

    def __init__(self, place, device) -> None:
        self.place = place
        self._config = device.config
        self._board = device.board
        self._say = device.say
        self._read_place = device.read_place
        self._end_ms = self.trial_s * 1000 if place.is_trial else 0
        self._proof_id: int | None = None  # the message that the new broker has to acknowledge

    @property
    def trial_s(self) -> int:
        """How long the trial may take."""
        return self.place.deadline_s * TRIAL_SHARE[0] // TRIAL_SHARE[1]

    def left_ms(self, now_ms: int) -> int | None:
        """How long the trial may still take; None if nothing is on trial."""
        return max(0, self._end_ms - now_ms) if self.place.is_trial else None

    def next_timer_ms(self) -> int | None:
        """When `advance` wants to be called at the latest."""
        return self._end_ms if self.place.is_trial else None

    def advance(self, device, session, now_ms: int) -> bool:
        """Looks how far the move is; returns whether the device has to start anew at once."""
        place = self.place
        if not place.is_trial:
            if place.is_pending and _is_answered(session):
                place.forget()
            return False
        if self._is_proven(device, session, now_ms) and place.confirm():
            self._say("the move is confirmed: this is the device's own network and port from now on")
            return False
        if now_ms >= self._end_ms:
            why = f"{_missing(session)} in {self.trial_s} s"
            self._say(f"the move has failed: {why}; the device goes back")
            place.fail(why)
            return True
        return False

    def _is_proven(self, device, session, now_ms: int) -> bool:
        """Whether messages go both ways. If there is none to be acknowledged, a report of the device's health is."""
        if not session.attached:
            return False
        proof_id = self._proof_id
        if proof_id is None:
            waiting = device.log.ids(1)
            proof_id = self._proof_id = waiting[0] if waiting else device.report(now_ms)
        if proof_id is None or device.log.holds(proof_id) or not _is_granted(session):
            return False
        return not any(first <= proof_id <= last for first, last, _, _ in device.log.gaps())

    def answer(self, payload: bytes, told: dict, is_once: bool) -> dict | None:
        """Carries out the command; returns None as long as its answer is not known.

        Args:
            payload: the command as it came, which tells it from others.
            told: the command's keys.
            is_once: whether it came at QoS 2, and so does not come again when it was acted on.
        """
        ended = self.place.outcome(payload)
        if ended is not None:
            return {"done": True} if not ended else {"error": f"{ended}; the device is at its old place"}
        if self.place.is_open:
            return None if is_once and self.place.is_of(payload) else {"error": "another move is on trial"}
        if not is_once:
            return {"error": "expected QoS 2: a move must not be done twice"}
        keys = {key: value for key, value in told.items() if key not in OWN_KEYS}
        deadline_s = told.get("deadline_s", DEADLINE_S)
        if type(deadline_s) is not int or not DEADLINE_S_MIN <= deadline_s <= DEADLINE_S_MAX:
            return {"error": f"deadline_s: expected an integer from {DEADLINE_S_MIN} to {DEADLINE_S_MAX}"}
        try:
            self._check(keys)
            self.place.propose(payload, keys, deadline_s)
        except ConfigError as error:
            return {"error": _without_value(str(error))}
        except StoreError as error:
            return {"error": f"it cannot be stored: {error}"}
        self._say(f"a move is on trial from the next start on, for {self.trial_s} s")
        return None

    def _check(self, keys: dict) -> None:
        """Raises ConfigError for what this device could not even try."""
        networks, ports = self._read_place(keys)
        if networks and self._board.Network is None:
            raise ConfigError(f"network is an object, expected none: {self._board.NAME} has no Wi-Fi to join")
        for port in ports or ():
            if port.is_scram and self._config.protocol_level != MQTT_5:
                raise ConfigError("port.authentication is scram, expected none with mqtt_version 3.1.1")
            if port.kind == "uart" and not self._board.has_speed(port.baud):
                raise ConfigError("port.baud is unknown, expected a speed that this board knows, such as 115200")
            files = (port.ca, port.certificate, port.key) if port.kind == "tls" else ()
            for path in files:
                if path is not None and not _is_there(path):
                    raise ConfigError(f"port.ca or another is missing, expected files on the device, such as {path}")


class TrialWatchdog:
    """A watchdog that gives a call that blocks no more time than the trial has left: then the device is back sooner.

    Args:
        watchdog: the watchdog itself, see `device.boards`.
        move: `Move`.
        uptime: has `now_ms`.
    """

    def __init__(self, watchdog, move: Move, uptime) -> None:
        self._watchdog = watchdog
        self._move = move
        self._uptime = uptime
        self.feed = watchdog.feed
        self.shorten = watchdog.shorten

    def lengthen(self, most_ms: int) -> None:
        left_ms = self._move.left_ms(self._uptime.now_ms())
        self._watchdog.lengthen(most_ms if left_ms is None else min(most_ms, left_ms + 1))


def begin(device) -> Move:
    """Puts the place in use into the device's configuration, at the start.

    Raises ConfigError if the firmware no longer takes what it took when the device was moved.
    """
    config = device.config
    config.place_base = base_of(config)
    place = Place(device.log, config.place_base)
    keys = place.begin()
    if keys:
        networks, ports = device.read_place(keys)
        config.networks = networks or config.networks
        config.ports = ports or config.ports
    move = Move(place, device)
    if place.is_trial:
        device.say(f"a move is on trial: it has {move.trial_s} s to prove itself")
    elif place.is_moved:
        device.say("network and port are those of a move, in place of those of the device's file")
    return move


def make(device) -> Move:
    """Makes the `Move` for a command, at any time after the start."""
    config = device.config
    return Move(Place(device.log, getattr(config, "place_base", None) or base_of(config)), device)


def _is_granted(session) -> bool:
    """Whether the broker has granted the subscription to commands over this connection."""
    return session.attached and session.inbox is not None and session.inbox.subscription.is_granted


def _is_answered(session) -> bool:
    """Whether every message to the device is answered."""
    return session.inbox is None or session.inbox.is_answered


def _missing(session) -> str:
    if not session.attached:
        return "no connection"
    return "no subscription to commands" if not _is_granted(session) else "no message acknowledged"


def _without_value(text: str) -> str:
    """The text of a ConfigError without the value, which may be a secret in the wrong place."""
    key, _, rest = text.partition(" is ")
    _, is_known, expectation = rest.rpartition(", expected ")
    return f"{key}: expected {expectation}" if is_known else text


def _is_there(path: str) -> bool:
    try:
        os.stat(path)
    except OSError:
        return False
    return True
