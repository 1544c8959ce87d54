"""The errors of the protocol, and the event Closed.

WireError
├── LocalProtocolError     our side asked for something that the protocol does not allow now
│   └── PacketTooLargeError
└── RemoteProtocolError    the peer sent something that the protocol does not allow
"""


class WireError(Exception):
    """A violation of the protocol; the text says what is wrong and where."""


class LocalProtocolError(WireError):
    """Misuse by our own side: nothing was sent and no state changed."""


class PacketTooLargeError(LocalProtocolError):
    """The packet exceeds the peer's Maximum Packet Size [MQTT-3.1.2-24, MQTT-3.2.2-15]; it was not sent."""


class RemoteProtocolError(WireError):
    """The peer violated the protocol; `reason_code` is the reason code of MQTT 5 for this violation.

    `protocol_level` is the MQTT version in which to answer a bad CONNECT.
    """

    protocol_level = 5

    def __init__(self, reason_code: int, text: str) -> None:
        super().__init__(text)
        self.reason_code = reason_code


class Closed:
    """The last event of a connection: write `data_to_send()`, then close the transport. `text` says why it ended.

    `server_reference` names another server that the client should use, "" if the server named none [section 4.13].
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
