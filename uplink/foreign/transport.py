"""The interface that a foreign system implements: a connection over which messages go and come.

A further system is one more file: a class with the methods of `Transport`, a table of the configuration made from
`ForeignConfig`, and a line in `uplink.foreign.kinds`. docs/explanation/foreign.md says what each method owes.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from uplink.connect.connections import LoginRefused

Login = tuple[bytes | None, ssl.SSLContext | None]
"""The password and the TLS context, None for each that a route has not."""


UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What a client library raises over bytes of the other system that are not what it expects."""


class TransportDown(Exception):
    """No connection can be made, or it has ended; the text says why."""


class NotLetIn(TransportDown, LoginRefused):
    """Each server refuses the login of the route."""


class CannotCarry(Exception):
    """A message has no form in the other system, such as one that is too large; the text says why."""


class Parcel(NamedTuple):
    """A message in the form of the other system.

    ``name`` is its subject or routing key, ``identity`` the value of `hf-id`, "" for none. ``receiver`` is the one that
    it is for, "" for all.
    """

    name: str
    headers: dict[str, str]
    payload: bytes
    identity: str = ""
    receiver: str = ""


class Verdict(Enum):
    """What the other system has said of a message."""

    TAKEN = "taken"
    """It has custody."""
    LATER = "later"
    """It does not have the message, and may take it later."""
    NEVER = "never"
    """It will never take the message."""
    UNDELIVERED = "undelivered"
    """It had the message, and a receiver has given it up."""


class Answer(NamedTuple):
    """A verdict, and the reason where it is no success."""

    verdict: Verdict
    reason: str = ""


Answered = Callable[[Answer], None]
"""Called once for each parcel, unless the connection ends before."""


class Arrival(NamedTuple):
    """A message that came.

    ``place`` names it for people. ``acknowledge`` says that the gateway has it for good. Without that it comes again,
    over this connection or the next one, where the other system has acknowledgements. ``fault`` is why it can be no
    message here, "" if it may be one. ``made`` is the identity that the transport makes of the message's place in the
    other system, "" if it makes none; a message that brings no identity has it.
    """

    parcel: Parcel
    place: str
    acknowledge: Callable[[], None]
    fault: str = ""
    made: str = ""


class Importer(Protocol):
    """Takes what comes."""

    def take(self, arrivals: Sequence[Arrival]) -> None:
        """Takes messages that came together."""

    async def wait_for_room(self) -> None:
        """Returns when more messages may come."""

    def highest_known(self, origin: str, epoch: int) -> int:
        """Returns the highest sequence number of these that is stored, 0 if none is."""


class Transport(Protocol):
    """One connection to a foreign system, made once and never made again.

    ``ended`` has the reason why the connection ended, once it has. ``server`` is the URL of the server. ``problem``
    says what does not come in as asked for, "" if nothing is wrong.
    """

    ended: asyncio.Future[str]
    server: str

    @property
    def problem(self) -> str: ...

    async def connect(self) -> None:
        """Makes the connection, to the first server that takes it. Raises TransportDown, and NotLetIn if each refuses
        the login.
        """

    async def send(self, parcel: Parcel, answered: Answered, /) -> None:
        """Sends a message; may wait for room on the line. Raises CannotCarry, TransportDown."""

    async def flush(self) -> None:
        """What was sent leaves now: nothing more comes for the time being. Raises TransportDown."""

    async def receive(self, importer: Importer) -> None:
        """Subscribes to what the configuration names, and hands on what comes as there is room, until the connection
        ends. Raises TransportDown.
        """

    async def close(self) -> None:
        """Ends the connection; what was acknowledged leaves before."""
