"""The module `holdfast`, for a user's own program on a board: the build copies this module there under that name.

`tools/cli/device/holdfast.pyi` says its types to an editor.
"""

from device import memory
from device.main import advance as advance_device
from device.main import fail, failures_of, load, make, make_watchdog
from device.values import ConfigError
from flash_store.errors import DeviceFailed as DeviceFailed
from flash_store.errors import MessageTooLarge as MessageTooLarge
from flash_store.errors import StoreError
from flash_store.errors import StoreFull as StoreFull

_parts: list = []  # the watchdog and the device that was started
_paths: list = []  # the path of its configuration
_failures: list = []  # see `device.main.failures_of`


def start(config_path: str = "device.json", on_message=None) -> None:
    """Starts the device; to be called first. Raises ConfigError, StoreError; after any other error a board restarts.

    Args:
        config_path: path of the configuration.
        on_message: called with topic and payload of each message to the topic filter `commands`; returns the answer as
            a dict, or None if the message is a command for the firmware.
    """
    memory.keep_dense()
    _paths[:] = [config_path]
    _parts[:] = []
    try:
        config = load(config_path)
        _parts.append(make_watchdog(config))
        _parts.append(make(config, on_message, _parts[0]))
        _failures[:] = failures_of(config_path)
    except (ConfigError, StoreError):
        raise
    except Exception as error:
        fail(config_path, error, _parts)
        raise


def advance(longest_ms: int | None = None) -> bool:
    """Does what is due, then waits for the network or until something is due. Call it in a loop.

    Returns False when the device has ended, because it restarts or sleeps; on most boards it does not return then.
    After an error a board logs the error and restarts.

    Args:
        longest_ms: the longest wait, for a program that has something else to do; None: no limit.
    """
    try:
        advance_device(_parts[1], _failures, longest_ms)
    except Exception as error:
        fail(_paths[0], error, _parts)
        raise
    return not _parts[1].has_ended


def publish(topic: str, payload: bytes, qos: int = 1) -> int:
    """Stores a message and returns its number once it is in flash; returns 0 at QoS 0, which stays in RAM.

    Raises StoreFull, MessageTooLarge, DeviceFailed: then nothing is stored. Raises ValueError or WireError if no broker
    would accept the message.
    """
    return _parts[1].publish(topic, payload, qos)


def landed() -> int:
    """Returns up to which number all messages are in the tables, or told as lost; 0 if no receipt has said so yet."""
    return getattr(_parts[1].log, "landed", 0)


def log(text: str) -> None:
    """Logs a line of text on the console, and over a serial link in the gateway's log; the latter may be lost."""
    _parts[1].say(text)
