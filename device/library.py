"""`import holdfast` in a program of one's own on a board: the build puts this module there under that name."""

from device import memory
from device.main import make, make_watchdog

_devices: list = []  # the one that was started


def start(config_path: str = "device.json", on_message=None) -> None:
    """Before all else. Raises ConfigError, StoreError.

    Args:
        on_message: called with topic and payload of each message that `commands` takes; returns the answer as a dict,
            or None where the message is a command for the firmware.
    """
    memory.keep_dense()
    from device.config import load

    config = load(config_path)
    del load  # with all of its module, in whose room the device is made
    _devices[:] = [make(config, on_message, make_watchdog(config))]


def advance(longest_ms: int | None = None) -> bool:
    """Does what is due, then waits for the network or for what is due next. Call it again and again.

    False when it is over: the device restarts or sleeps, which on most boards does not even return.

    Args:
        longest_ms: how long it may wait, where the program has something else to do.
    """
    _devices[0].advance(longest_ms)
    return not _devices[0].has_ended


def publish(topic: str, payload: bytes, qos: int = 1) -> int:
    """Returns the message's number once flash has it; 0 at QoS 0, which stays in RAM.

    Raises StoreFull, MessageTooLarge, DeviceFailed: then nothing is stored; ValueError, WireError where no broker would
    take it.
    """
    return _devices[0].publish(topic, payload, qos)


def log(text: str) -> None:
    """A line for people: on the console, and over a serial link into the gateway's log, where it may be lost."""
    _devices[0].say(text)
