"""The firmware's entry point: `import device.main; device.main.main("device.json")`."""

import os
import sys

from device import memory
from device.values import ConfigError
from flash_store.errors import StoreError

FAILURES = ".failed"  # suffix to the configuration's path: the file that counts failures in a row
STEADY_MS = 1_200_000  # a start that lasts this long ends a row of failures; longer than the longest pause


def main(config_path: str, on_message=None) -> None:
    """Runs until Ctrl-C or a power cut; after either, nothing needs to be repaired.

    After any failure a board restarts, after a pause; see `device.failed`. On a machine with an operating system the
    process ends: with exit code 2 if the configuration cannot be used and names no port over which to report that, with
    1 if the flash cannot be used, otherwise with the exception.

    Args:
        on_message: see `device.mqtt.commands.Commands`.
    """
    memory.keep_dense()
    try:
        while True:
            _run(config_path, on_message)
    except ConfigError as error:
        _exit(2, _told(error))
    except StoreError as error:
        _exit(1, _told(error))
    except KeyboardInterrupt:
        pass


def _run(config_path: str, on_message) -> None:
    """Runs from one start to the next restart or deep sleep; returns only on boards where the program goes on then."""
    parts: list = []  # the watchdog, the device
    try:
        _turn(config_path, on_message, parts)
    except Exception as error:
        fail(config_path, error, parts)
        raise


def _turn(config_path: str, on_message, parts: list) -> None:
    try:
        config = load(config_path)
        parts.append(make_watchdog(config))
        parts.append(make(config, on_message, parts[0]))
    except (ConfigError, StoreError) as error:
        _say_only(config_path, error, parts)
    else:
        failures = failures_of(config_path)
        while not parts[1].has_ended:
            advance(parts[1], failures)


def advance(device, failures: list, longest_ms: int | None = None) -> None:
    """Runs one turn of the device's loop; after STEADY_MS it removes the file that counts failures."""
    device.advance(longest_ms)
    if failures and device.uptime.now_ms() >= STEADY_MS:
        os.remove(failures.pop())


def failures_of(config_path: str) -> list:
    """Returns a list with the path of the file that counts failures; an empty list if there is no such file."""
    try:
        os.stat(config_path + FAILURES)
    except OSError:
        return []
    return [config_path + FAILURES]


def fail(config_path: str, error: Exception, parts: list) -> None:
    """Reports a failure and restarts the board after a pause. On a machine with an operating system it returns.

    Args:
        parts: the watchdog and the device, as far as they were made.
    """
    from device.boards import board

    text = _told(error) if isinstance(error, (ConfigError, StoreError)) else repr(error)
    try:
        from device.failed import start_anew

        start_anew(board, config_path + FAILURES, text, *parts)
    except Exception:  # for example no memory for the report either
        board.restart()


def _say_only(config_path: str, error: Exception, parts: list) -> None:
    from device.boards import board
    from device.config import Readable
    from device.safe_mode import run

    text, pause_ms = _told(error), None
    if isinstance(error, StoreError) and board.RESTARTS:  # the chip may work at another start
        from device.failed import pause

        pause_ms, end = pause(config_path + FAILURES)
        text += end
    run(Readable(config_path, error), text, board, pause_ms, *parts)
    board.restart()


def load(config_path: str):
    """Reads the device's configuration; then only that is in the heap, and no module for it. Raises ConfigError.

    The import is in a function that has ended before the module goes: MicroPython keeps an object that a word on the
    stack might point to, and the words of a function that runs stay there.
    """
    config = _load(config_path)
    memory.leave("device.config", "device.sensors.config")
    return config


def _load(config_path: str):
    from device import config

    return config.load(config_path)


def make_watchdog(config):
    """Starts the watchdog; to be called before anything else that may fail. Raises ConfigError."""
    from device import assembly
    from device.boards import board

    return assembly.make_watchdog(config, board)


def _load_in_turn() -> None:
    """Loads the large modules, each after the modules that it imports.

    A module that is loaded takes more of the heap until its last import has ended, so each is loaded alone.
    """
    # isort: off
    from flash_store.log import Log  # noqa: F401
    from wire.connection.client import ClientConnection  # noqa: F401
    from device.device import Device  # noqa: F401
    # isort: on


def make(config, on_message=None, watchdog=None):
    """Makes the device that a configuration describes. Raises ConfigError, StoreError."""
    _load_in_turn()
    from device.boards import board

    if config.duty is None:
        from device.device import Device

        device = Device(config, board, on_message, watchdog)
    else:
        from device.sleeper import Sleeper

        device = Sleeper(config, board, on_message, watchdog)
    memory.leave("device.assembly")
    return device


def _told(error: Exception) -> str:
    return f"{'flash' if isinstance(error, StoreError) else 'configuration'}: {error}"


def _exit(code: int, text: str) -> None:
    sys.stderr.write(text + "\n")
    raise SystemExit(code)
