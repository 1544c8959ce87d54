"""`import holdfast` in a program of one's own on a board: the build puts this module there under that name."""

from device import memory
from device.errors import ConfigError
from device.main import advance as advance_device
from device.main import fail, failures_of, make, make_watchdog
from flash_store.errors import StoreError

_parts: list = []  # the watchdog and the device that was started
_paths: list = []  # of its configuration
_failures: list = []  # see `device.main.failures_of`


def start(config_path: str = "device.json", on_message=None) -> None:
    """Before all else. Raises ConfigError, StoreError; after anything else that fails a board starts anew.

    Args:
        on_message: called with topic and payload of each message that `commands` takes; returns the answer as a dict,
            or None where the message is a command for the firmware.
    """
    memory.keep_dense()
    _paths[:] = [config_path]
    _parts[:] = []
    try:
        from device.config import load

        config = load(config_path)
        del load  # with all of its module, in whose room the device is made
        _parts.append(make_watchdog(config))
        _parts.append(make(config, on_message, _parts[0]))
        _failures[:] = failures_of(config_path)
    except (ConfigError, StoreError):
        raise
    except Exception as error:
        fail(config_path, error, _parts)
        raise


def advance(longest_ms: int | None = None) -> bool:
    """Does what is due, then waits for the network or for what is due next. Call it again and again.

    False when it is over: the device restarts or sleeps, which on most boards does not even return. What fails in it is
    said, and a board starts anew.

    Args:
        longest_ms: how long it may wait, where the program has something else to do.
    """
    try:
        advance_device(_parts[1], _failures, longest_ms)
    except Exception as error:
        fail(_paths[0], error, _parts)
        raise
    return not _parts[1].has_ended


def publish(topic: str, payload: bytes, qos: int = 1) -> int:
    """Returns the message's number once flash has it; 0 at QoS 0, which stays in RAM.

    Raises StoreFull, MessageTooLarge, DeviceFailed: then nothing is stored; ValueError, WireError where no broker would
    take it.
    """
    return _parts[1].publish(topic, payload, qos)


def log(text: str) -> None:
    """A line for people: on the console, and over a serial link into the gateway's log, where it may be lost."""
    _parts[1].say(text)
