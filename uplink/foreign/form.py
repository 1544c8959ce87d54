"""How messages look in another system: what a route makes of each, over all its connections."""

from typing import Protocol

from gateway.routes import Message
from uplink.foreign.balance import Receivers
from uplink.foreign.headers import encode, identity_of
from uplink.foreign.names import Names
from uplink.foreign.transport import Parcel


class Form(Protocol):
    """Makes parcels of messages."""

    def parcel(self, message: Message, hop: str, /) -> Parcel:
        """Returns a message in the other system's form; `hop` is the one of this gateway. Raises NoName."""


class HeaderForm:
    """A name there, headers, and the payload as it is.

    Args:
        names: translates topic names.
        receivers: among which messages are shared.
        with_headers: whether MQTT's own properties go as headers.
        with_properties: whether user properties do.
    """

    def __init__(self, names: Names, receivers: Receivers, *, with_headers: bool, with_properties: bool) -> None:
        self.receivers = receivers
        self._names = names
        self._with_headers = with_headers
        self._with_properties = with_properties

    def parcel(self, message: Message, hop: str) -> Parcel:
        """Returns a message in the other system's form. Raises NoName."""
        name, receiver = self._names.name_of(message.topic), self.receivers.choose()
        headers = encode(message, hop, with_headers=self._with_headers, with_properties=self._with_properties)
        return Parcel(f"{name}.{receiver}" if receiver else name, headers, message.payload, identity_of(message))
