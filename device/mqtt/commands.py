"""The commands of the firmware. Each is a JSON object with the key `command` and the command's arguments.

{"command": "identify"}                          answers which device this is
{"command": "interval", "interval_ms": 60000}    changes the sampling interval, now and after each restart
{"command": "log", "after": 0}                   answers with the lines of the log behind this number
{"command": "move", "network": {}, "port": {}}   tries another Wi-Fi or broker, see `device.field.move`
{"command": "report"}                            stores a report of the device's health at once
{"command": "restart"}                           restarts the device
{"command": "set_aside"}                         answers which messages brokers have refused for good, and why
"""

import json

from device.mqtt.settings import INTERVAL
from flash_store.errors import StoreCorrupt, StoreError

INTERVAL_MS_MAX = 86_400_000


class Commands:
    """Args:
    device: `device.device.Device`.
    on_message: a function of the user's own program, or None. It is called first, with topic and payload, and returns
        the answer as a dict, or None if the message is a command for the firmware.
    """

    def __init__(self, device, on_message=None) -> None:
        self._device = device
        self._on_message = on_message

    def act(self, topic: str, payload: bytes, now_ms: int, is_once: bool = False) -> dict | None:
        """Carries out the command and returns the answer; if that fails, the answer has the key `error`.

        Returns None if the answer is not known yet: then it is to be called again, perhaps after a restart.

        Args:
            is_once: whether the command came at QoS 2.
        """
        answer = self._on_message(topic, payload) if self._on_message is not None else None
        if answer is not None:
            return answer
        try:
            told = json.loads(payload)
            name = told["command"]
        except (ValueError, KeyError, TypeError):
            return {"error": 'expected a JSON object with "command"'}
        done = self._do(name, told, now_ms, payload, is_once)
        if done is None:
            return None
        answer = {"command": name}
        answer.update(done)
        if "correlation" in told:  # MQTT 3.1.1 has no Correlation Data, so its clients put it into the JSON object
            answer["correlation"] = told["correlation"]
        return answer

    def _do(self, name: str, told: dict, now_ms: int, payload: bytes, is_once: bool) -> dict | None:
        device = self._device
        if name == "identify":
            device.say("identify")
            return device.facts()
        if name == "interval":
            return self._change_interval(told.get("interval_ms"), now_ms)
        if name == "report":
            if device.report(now_ms) is None:
                return {"error": "the store has no room for it"}
        elif name == "restart":
            device.wants_restart = True
        elif name == "set_aside":
            from device.mqtt.refusals import read_set_aside

            return read_set_aside(device.log)
        else:
            return device.act(told, payload, is_once)
        return {"done": True}

    def _change_interval(self, interval_ms, now_ms: int) -> dict:
        least_ms = self._device.shortest_interval_ms
        if type(interval_ms) is not int or not least_ms <= interval_ms <= INTERVAL_MS_MAX:
            return {"error": f"expected interval_ms from {least_ms} to {INTERVAL_MS_MAX}"}
        try:
            self._device.log.settings.set(INTERVAL, str(interval_ms).encode())
        except StoreError as error:
            return {"error": f"it cannot be stored: {error}"}
        self._device.change_interval(interval_ms, now_ms)
        return {"done": True, "interval_ms": interval_ms}


def stored_interval_ms(log, least_ms: int) -> int | None:
    """Returns the interval that a command has set; None if no command has, or the configuration no longer allows it."""
    try:
        value = log.settings.get(INTERVAL)
    except StoreCorrupt:
        return None
    if value is None or not least_ms <= int(value) <= INTERVAL_MS_MAX:
        return None
    return int(value)
