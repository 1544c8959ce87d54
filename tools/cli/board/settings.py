"""What the user gave to `holdfast flash`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from device.config import Config
from host.credentials import Credentials
from host.server import Server


@dataclass(frozen=True)
class Settings:
    """What is written, where, and what may be lost.

    Attributes:
        port: the serial port.
        baud: its speed for an ESP32's loader.
        config: the device's configuration.
        keys: what it says.
        micropython: MicroPython's file; None where the board's own stays.
        rescue: where to messages are sent before they are erased.
        login: the login there.
        lends: whether that is another user's than the device's own; then it is lent to the board's own messages alone.
        discards: whether messages without an acknowledgement may be erased.
        replaces: whether another program, and files that are not ours, may be replaced.
        drive: the folder of an RP2's drive; None to look for it.
        given: files in place of some that lie at the configuration, by their paths on the board. Some are secret.
        claim: called with the board's number before its files are written. It raises Refused if they are for another
            board.
    """

    port: str
    baud: int
    config: Path
    keys: Config
    micropython: Path | None = None
    rescue: Server | None = None
    login: Credentials | None = None
    lends: bool = False
    discards: bool = False
    replaces: bool = False
    drive: Path | None = None
    given: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    claim: Callable[[str], object] = lambda _number: None
