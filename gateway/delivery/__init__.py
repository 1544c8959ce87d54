"""Messages on their way out, to clients and over routes: what other folders may use of it.

A `Sender` takes messages from cursors and sends them through the `Window` of one connection. A `RetainedCursor` hands
out the retained messages that the new subscriptions of a session match, and that a `RetainedSearch` has found. A
`LiveHold` holds new messages back until these have been sent.
"""

from gateway.delivery.live_hold import LiveHold
from gateway.delivery.retained_cursor import RetainedCursor
from gateway.delivery.retained_search import Found, RetainedSearch, Wanted
from gateway.delivery.sender import Sender
from gateway.delivery.window import Flight, Peer, Window

__all__ = ["Flight", "Found", "LiveHold", "Peer", "RetainedCursor", "RetainedSearch", "Sender", "Wanted", "Window"]
