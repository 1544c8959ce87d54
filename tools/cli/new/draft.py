"""A configuration from answers, checked as the board will check it."""

import json
from typing import Any

from device.config import Config
from device.values import ConfigError
from tools.cli.device.check_config import Board, refusals
from tools.cli.new.answers import AnswerError, Answers

WATCHDOG_MS = 8000
PARTITION, STORAGE = "holdfast", "storage"


def draft(answers: Answers) -> dict[str, Any]:
    """Returns the keys of a configuration.

    For a gateway with TLS the board also needs keys of `port` that only a site knows: `holdfast flash --site` adds
    them.

    Raises:
        AnswerError: the firmware, or a board of this kind, would refuse it.
    """
    keys: dict[str, Any] = {"client_id": answers.name, "topic": answers.topic}
    if answers.wifi:
        keys["network"] = {"ssid": answers.wifi, "password": answers.wifi_password}
    keys["port"] = {"host": answers.gateway.host, "port": answers.gateway.port}
    if answers.user is not None:
        keys["port"] |= {"user": answers.user, "password": answers.password}
    keys["flash"] = {"path": answers.flash or (STORAGE if answers.board is Board.RP2 else PARTITION)}
    keys["interval_ms"] = round(answers.interval_s * 1000)
    if answers.gateway.is_encrypted:
        keys["clock"] = {"kind": "ntp", "host": answers.ntp}
    keys["sensors"] = answers.sensors
    keys |= {key: topic for key, topic in (("status", answers.status), ("commands", answers.commands)) if topic}
    keys["watchdog_ms"] = WATCHDOG_MS
    try:
        config = Config(json.loads(json.dumps(keys)))
    except ConfigError as error:
        raise AnswerError(str(error)) from error
    if wrong := refusals(config, answers.board):
        raise AnswerError("\n".join(wrong))
    return keys


def as_json(keys: dict[str, Any]) -> bytes:
    """Returns the bytes of the file: a key a line."""
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in keys.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()
