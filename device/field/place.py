"""The networks and brokers that a device uses in place of those of its file, because a command has moved it.

A move is on trial first. The device restarts, and one start alone uses the new place; `device.field.move` says when it
is confirmed. Whatever else ends that start (the deadline, a failure, a power cut), the next one uses the old place.

The setting has a JSON object. Each change of it is one record on flash, so a power cut leaves the state before the
change or the one behind it:

    own    the keys `network` and `port` in use, as in the file; absent: those of the file
    base   number of the file's networks and ports to which all of this belongs; with another file it is void
    trial  the keys of a move that is not confirmed
    s      with `trial`: the deadline in seconds
    begun  with `trial`: 1 once a start uses it
    of     number of the command's payload, so that its answer is known as its own
    ended  how that move ended, until the command is answered: "" if it is confirmed, otherwise why not

    (nothing) --command--> trial --start--> trial, begun --confirmed--> own, ended ""  --answered--> own
        ^                    |                   +-- all else --> (own,) ended "why" --answered--> (own)
        +---- answered ------+-- no room to note that it has begun

Networks that the device was told over its console (`device.field.setup`) become `own` at once: it has joined them.
"""

import binascii
import json

from device.mqtt.settings import INTERVAL, PLACE
from flash_store.errors import StoreCorrupt, StoreError

CUT = "the device started anew during the trial"
OTHER_FILE = "the device's file was changed"


class Place:
    """The setting, as an object. `is_trial`: this start uses the new place, and has to confirm it.

    Args:
        log: the device's `flash_store.log.Log`.
        base: see `base_of`.
    """

    def __init__(self, log, base: int) -> None:
        self._log = log
        self._base = base
        self.is_trial = False
        self._has_told = False  # whether the command is about to be answered
        self._state: dict = _read(log)
        if self._state and self._state.get("base") != base:
            self._end(None, OTHER_FILE)

    def begin(self) -> dict:
        """To be called once, at the start. Returns the keys to use in place of the file's.

        The first start after the command makes durable that it has begun, before it uses anything of the new place.
        """
        own = self._state.get("own") or {}
        if "trial" not in self._state:
            return own
        if "begun" in self._state:
            self._end(own, CUT)
            return own
        state = self._state.copy()
        state["begun"] = 1
        try:
            self._set(state)
        except StoreError as error:
            self._end(own, f"it cannot be noted: {error}")
            return own
        self.is_trial = True
        return self.wanted

    @property
    def wanted(self) -> dict:
        """The keys that the device uses during the trial, and has if it is confirmed."""
        keys: dict = dict(self._state.get("own") or {})
        keys.update(self._state["trial"])
        return keys

    @property
    def deadline_s(self) -> int:
        """The deadline of the trial."""
        return self._state["s"]

    @property
    def is_moved(self) -> bool:
        """Whether a confirmed move is in use."""
        return bool(self._state.get("own"))

    @property
    def is_open(self) -> bool:
        """Whether a trial has not ended, or not begun."""
        return "trial" in self._state

    @property
    def is_pending(self) -> bool:
        """Whether a trial or an answer is outstanding; otherwise this object has nothing left to do."""
        return "trial" in self._state or "ended" in self._state

    def propose(self, payload: bytes, keys: dict, deadline_s: int) -> None:
        """Notes a move, for the next start. Raises StoreError."""
        state: dict = {"base": self._base, "trial": keys, "s": deadline_s, "of": binascii.crc32(payload)}
        if self.is_moved:
            state["own"] = self._state["own"]
        self._set(state)
        self._has_told = False

    def confirm(self) -> bool:
        """Makes the new place the device's own; returns whether that is durable."""
        try:
            self._set({"base": self._base, "own": self.wanted, "of": self._state["of"], "ended": ""})
        except StoreError:
            return False
        self.is_trial = False
        return True

    def adopt(self, keys: dict) -> None:
        """Makes keys the device's own at once, as they have proven themselves already. Raises StoreError.

        Not while a trial is open.
        """
        own: dict = dict(self._state.get("own") or {})
        own.update(keys)
        state = self._state.copy()
        state["base"], state["own"] = self._base, own
        self._set(state)

    def fail(self, why: str) -> None:
        """The trial is over: the next start uses the old place. It does so even if there is no room to note why."""
        self._end(self._state.get("own"), why)

    def outcome(self, payload: bytes):
        """How the move of this command ended: "" if well, otherwise why not; None if that is open, or it is no move of
        this command."""
        if self._has_told or "ended" not in self._state or not self.is_of(payload):
            return None
        self._has_told = True
        return self._state["ended"]

    def is_of(self, payload: bytes) -> bool:
        """Whether this is the command of the last move."""
        return self._state.get("of") == binascii.crc32(payload)

    def forget(self) -> None:
        """Forgets how the move ended, once no command waits for an answer."""
        state: dict = {"base": self._base}
        if self.is_moved:
            state["own"] = self._state["own"]
        try:
            self._set(state)
        except StoreError:
            pass  # a later turn or start has room

    def _end(self, own, why: str) -> None:
        """Ends a trial. If it ended before, how it ended stays as it is. `own`: the keys in use from now on, if any."""
        state: dict = {"base": self._base}
        if own:
            state["own"] = own
        if "of" in self._state:
            state["of"] = self._state["of"]
            state["ended"] = self._state.get("ended", why)
        self.is_trial = False
        try:
            self._set(state)
        except StoreError:
            self._state = state  # flash has it as begun, or of another file, which means the same

    def _set(self, state: dict) -> None:
        if len(state) == 1:  # it says nothing
            self._log.settings.remove(PLACE)
            self._state = {}
        else:
            self._log.settings.set(PLACE, json.dumps(state).encode())
            self._state = state


def base_of(config) -> int:
    """Returns a number of a configuration's networks and ports, which is another one if one of them changes."""
    parts: list = [(one.ssid, one.password, one.address) for one in config.networks]
    for port in config.ports:
        parts.append((port.kind, port.user, port.password))
        parts.append((port.path, port.baud) if port.kind == "uart" else (port.host, port.port))
        if port.kind == "tls":
            parts.append((port.server_name, port.ca, port.certificate, port.key))
    return binascii.crc32(repr(parts).encode())


def reset(log) -> None:
    """Removes every move, also one on trial, and a changed interval. Raises StoreError."""
    log.settings.remove(INTERVAL)
    state = _read(log)
    if "of" in state:
        state = {"base": state["base"], "of": state["of"], "ended": "the device was reset by its button"}
        log.settings.set(PLACE, json.dumps(state).encode())
    else:
        log.settings.remove(PLACE)


def _read(log) -> dict:
    try:
        value = log.settings.get(PLACE)
    except StoreCorrupt:
        return {}
    return json.loads(value) if value else {}
