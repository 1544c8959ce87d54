"""What can go wrong on the wire.

WireError
├── LocalProtocolError     our side asked for something the protocol does not allow now
│   └── PacketTooLargeError
└── RemoteProtocolError    the peer sent something the protocol does not allow
    └── UnsupportedVersionError
"""


class WireError(Exception):
    """A protocol was broken; the text says what and where."""


class LocalProtocolError(WireError):
    """Misuse by our own side: nothing was sent and no state changed."""


class PacketTooLargeError(LocalProtocolError):
    """The packet is larger than the peer takes [MQTT-3.1.2-24, MQTT-3.2.2-15]; it was not sent."""


class RemoteProtocolError(WireError):
    """The peer broke the protocol; `reason_code` is the one the MQTT 5 standard names for it."""

    def __init__(self, reason_code: int, text: str) -> None:
        super().__init__(text)
        self.reason_code = reason_code


class UnsupportedVersionError(RemoteProtocolError):
    """A CONNECT of another protocol version than 5; `level` is the one it asked for."""

    def __init__(self, level: int) -> None:
        super().__init__(0x84, f"protocol version {level} is not supported, only 5 is [MQTT-3.1.2-2]")
        self.level = level
