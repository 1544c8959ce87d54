"""The firmware's entry: `import device.main; device.main.main("device.json")`."""

import os
import sys

from device import memory
from device.errors import ConfigError
from flash_store.errors import StoreError

FAILURES = ".failed"  # behind the name of the configuration's file: that of the file that counts failures
STEADY_MS = 1_200_000  # longer than the longest pause after a failure


def main(config_path: str, on_message=None) -> None:
    """Runs until Ctrl-C or a power cut; both leave nothing to tidy up.

    Whatever fails, a board starts anew after a pause, see `device.failed`. A process ends: it raises SystemExit with 2
    where the configuration cannot be used and there is no port to say so, with 1 where the flash cannot, or the error.

    Args:
        on_message: see `device.commands.Commands`.
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
    """From a start to a restart, or to the end of a deep sleep, on a board where the program goes on after these."""
    parts: list = []  # the watchdog, the device
    try:
        _turn(config_path, on_message, parts)
    except Exception as error:
        fail(config_path, error, parts)
        raise


def _turn(config_path: str, on_message, parts: list) -> None:
    from device.config import load

    try:
        config = load(config_path)
        del load  # with all of its module, in whose room the device is made
        parts.append(make_watchdog(config))
        parts.append(make(config, on_message, parts[0]))
    except (ConfigError, StoreError) as error:
        _say_only(config_path, error, parts)
    else:
        failures = failures_of(config_path)
        while not parts[1].has_ended:
            advance(parts[1], failures)


def advance(device, failures: list, longest_ms: int | None = None) -> None:
    """A turn of the device, whose start ends a row of failures once it has lasted."""
    device.advance(longest_ms)
    if failures and device.uptime.now_ms() >= STEADY_MS:
        os.remove(failures.pop())


def failures_of(config_path: str) -> list:
    """The path of the file that counts failures, where there is one."""
    try:
        os.stat(config_path + FAILURES)
    except OSError:
        return []
    return [config_path + FAILURES]


def fail(config_path: str, error: Exception, parts: list) -> None:
    """Returns where the program runs on a machine, which sees it end.

    Args:
        parts: the watchdog and the device, as far as they were made.
    """
    from device.boards import board

    text = _told(error) if isinstance(error, (ConfigError, StoreError)) else repr(error)
    try:
        from device.failed import start_anew

        start_anew(board, config_path + FAILURES, text, *parts)
    except Exception:  # no memory for that either, say
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


def make_watchdog(config):
    """Before all else that may fail. Raises ConfigError."""
    from device import assembly
    from device.boards import board

    return assembly.make_watchdog(config, board)


def make(config, on_message=None, watchdog=None):
    """The device of a configuration. Raises ConfigError, StoreError."""
    memory.leave("device.config", "device.sensors.config")
    from device.boards import board

    if config.duty is None:
        from device.device import Device

        device = Device(config, board, on_message, watchdog)
    else:
        from device.sleeper import Sleeper

        device = Sleeper(config, board, on_message, watchdog)
    memory.leave("device.assembly", "flash_store.mount")
    return device


def _told(error: Exception) -> str:
    return f"{'flash' if isinstance(error, StoreError) else 'configuration'}: {error}"


def _exit(code: int, text: str) -> None:
    sys.stderr.write(text + "\n")
    raise SystemExit(code)
