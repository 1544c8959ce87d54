"""Answers Improv over serial on a device's console: it tells a browser what the device is and which networks it sees,
and takes the Wi-Fi that the device is to use.

    READY --settings--> PROVISIONING --joined, and stored--> PROVISIONED
      ^                      |
      +---- not joined ------+   the device goes on with the networks that it had

Settings are stored as those of a move (`device.field.place`), by one record on flash.
"""

import sys

from device.field import improv
from device.field.improv import BAD, GET_DEVICE, GET_NETWORKS, GET_STATE, SEND_SETTINGS
from device.values import ConfigError
from flash_store.errors import StoreError

FIRMWARE, RELEASE = b"Holdfast", b"0.1.0"  # tests compare the release with that of the package
JOIN_MS = 30_000  # browsers wait for 45 s
QUIET_MS = 60_000  # after so long without a packet the conversation is over
REST_MS = 15_000  # after a scan the device leaves the radio alone for so long: browsers scan every three seconds
NETWORKS_MAX = 24
HARDWARE_BYTES_MAX = 48


class Setup:
    """One conversation.

    Args:
        device: `device.device.Device`.
        own: the device's `device.field.told_network.ToldNetwork`.
    """

    def __init__(self, device, own, now_ms: int) -> None:
        self._device = device
        self._own = own
        self._reader = improv.Reader()
        self._heard_ms = now_ms
        self._rest_ms = now_ms  # until when the radio is left alone
        self._tried: list = []  # the network that is being joined
        self._keys: dict = {}
        self._end_ms = 0
        self._state = self._find_state()

    def advance(self, data: bytes, now_ms: int) -> bool:
        """Takes bytes of the console and goes on; returns False when the conversation is over."""
        for command, content in self._reader.feed(data, now_ms):
            self._heard_ms = now_ms
            self._act(command, content, now_ms)
        if self._tried:
            self._try(now_ms)
        elif self._find_state() != self._state:
            self._tell_state()
        return bool(self._tried) or now_ms - self._heard_ms < QUIET_MS

    def needs_radio(self, now_ms: int) -> bool:
        """Whether the device's own networks have to wait."""
        return bool(self._tried) or now_ms < self._rest_ms

    def close(self) -> None:
        if self._tried:
            self._tried.pop().close()

    def _act(self, command: int, content: bytes, now_ms: int) -> None:
        if command == BAD or (command != SEND_SETTINGS and content and command <= GET_NETWORKS):
            self._tell_error(improv.BAD_COMMAND)
            return
        self._tell_error(improv.NO_ERROR)
        if command == SEND_SETTINGS:
            self._take_settings(content, now_ms)
        elif command == GET_STATE:
            self._tell_state()
            if self._state == improv.PROVISIONED:
                self._answer(GET_STATE, [])
        elif command == GET_DEVICE:
            hardware = getattr(sys.implementation, "_machine", self._device.board.NAME).encode()
            name = self._device.config.client_id.encode()
            self._answer(GET_DEVICE, [FIRMWARE, RELEASE, hardware[:HARDWARE_BYTES_MAX], name])
        elif command == GET_NETWORKS:
            self._tell_networks(now_ms)
        else:
            self._tell_error(improv.UNKNOWN_COMMAND)

    def _take_settings(self, content: bytes, now_ms: int) -> None:
        texts = improv.read_texts(content)
        if texts is None or len(texts) != 2:
            self._tell_error(improv.BAD_COMMAND)
            return
        if self._tried or self._device.field.is_moving:
            self._tell_error(improv.FAILED)
            return
        try:
            self._keys = {"network": {"ssid": str(texts[0], "utf-8"), "password": str(texts[1], "utf-8") or None}}
            networks = self._device.read_place(self._keys)[0]
        except (ConfigError, UnicodeError):
            self._tell_error(improv.BAD_COMMAND)
            return
        except MemoryError:
            self._tell_error(improv.FAILED)
            return
        device, config = self._device, self._device.config
        if self._own.network is not None:
            self._own.network.close()
        watchdog = self._own.watchdog
        self._tried.append(device.board.Network(networks, config.host_name, device.say, watchdog, config.country))
        self._end_ms = now_ms + JOIN_MS
        self._tell_state()

    def _try(self, now_ms: int) -> None:
        """Joins the network that was told; once it is joined, it becomes the device's own."""
        tried = self._tried[0]
        try:
            tried.advance(now_ms)
        except OSError:
            self._end_ms = now_ms
        if tried.is_up:
            self._adopt()
        elif now_ms >= self._end_ms:
            self._give_up(improv.NOT_JOINED)

    def _adopt(self) -> None:
        device = self._device
        try:
            device.field.adopt(device, self._keys)
        except StoreError as error:
            device.say(f"the Wi-Fi cannot be stored: {error}")
            self._give_up(improv.FAILED)
            return
        self._own.network = self._tried.pop()
        self._rest_ms = 0
        device.say("this is the device's own Wi-Fi from now on")
        self._tell_state()
        self._answer(SEND_SETTINGS, [])

    def _give_up(self, error: int) -> None:
        self.close()
        self._tell_error(error)
        self._tell_state()

    def _tell_networks(self, now_ms: int) -> None:
        if self._tried:
            self._tell_error(improv.FAILED)
            return
        if self._own.network is not None and not self._own.network.is_up:
            self._own.network.close()  # no radio scans while it joins
            self._rest_ms = now_ms + REST_MS
        told: set = set()
        try:
            found = self._own.scan(self._own.watchdog)
        except OSError:
            found = []
        for name, strength, is_open in found:
            if name and name not in told and len(told) < NETWORKS_MAX and _is_text(name):
                told.add(name)
                self._answer(GET_NETWORKS, [name, str(strength).encode(), b"NO" if is_open else b"YES"])
        self._answer(GET_NETWORKS, [])

    def _find_state(self) -> int:
        if self._tried:
            return improv.PROVISIONING
        return improv.PROVISIONED if self._own.network is not None and self._own.network.is_up else improv.READY

    def _tell_state(self) -> None:
        self._state = self._find_state()
        self._own.console.write(improv.packet(improv.STATE, bytes([self._state])))

    def _tell_error(self, error: int) -> None:
        self._own.console.write(improv.packet(improv.ERROR, bytes([error])))

    def _answer(self, command: int, texts: list) -> None:
        self._own.console.write(improv.result(command, texts))


def _is_text(name: bytes) -> bool:
    try:
        str(name, "utf-8")
    except UnicodeError:
        return False
    return True
