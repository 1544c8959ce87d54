"""What can go wrong on the wire, and how a connection has ended.

WireError
├── LocalProtocolError     our side asked for something the protocol does not allow now
│   └── PacketTooLargeError
└── RemoteProtocolError    the peer sent something the protocol does not allow
"""


class WireError(Exception):
    """A protocol was broken; the text says what and where."""


class LocalProtocolError(WireError):
    """Misuse by our own side: nothing was sent and no state changed."""


class PacketTooLargeError(LocalProtocolError):
    """The packet is larger than the peer takes [MQTT-3.1.2-24, MQTT-3.2.2-15]; it was not sent."""


class RemoteProtocolError(WireError):
    """The peer broke the protocol; `reason_code` is the one the MQTT 5 standard names for it.

    `protocol_level` is the version in which a bad CONNECT is answered.
    """

    protocol_level = 5

    def __init__(self, reason_code: int, text: str) -> None:
        super().__init__(text)
        self.reason_code = reason_code


class Closed:
    """The last event: write `data_to_send()`, then close the transport. `text` says why.

    `server_reference` is where the server sends its client, "" where it says nothing [section 4.13].
    """

    def __init__(self, reason_code: int, text: str, server_reference: str = "") -> None:
        self.reason_code = reason_code
        self.text = text
        self.server_reference = server_reference

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Closed) and repr(self) == repr(other)

    def __repr__(self) -> str:
        from wire.reasons import describe

        reference = f", go to {self.server_reference}" if self.server_reference else ""
        return f"Closed({describe(self.reason_code)}: {self.text}{reference})"
