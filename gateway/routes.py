"""All of the gateway that a route uses: ``uplink`` imports from here and from nowhere else in ``gateway``."""

from gateway.auth.permissions import Trusting
from gateway.config.errors import Checked, ConfigSource
from gateway.config.load import Table, beside, check_readable, read_secret
from gateway.config.pem import load_authorities, load_own, reason_of
from gateway.config.schema import NAME_BYTES_MAX, Count, NonEmpty
from gateway.connection.publish_in import Intake, Topics
from gateway.connection.services import Services
from gateway.counters import RouteState
from gateway.delivery import Peer, Sender, Window
from gateway.errors import ConfigError, ListenError
from gateway.listeners.websocket_frames import FrameError, Frames, encode_frame
from gateway.message import Message, identity_properties, plain_properties
from gateway.pace import Shift, Slice
from gateway.signals import Signal
from gateway.store import (
    DAMAGED,
    DONE,
    EVICTED,
    EXPIRED,
    OVERSIZE,
    REJECTED,
    ROUTE_END,
    SELECTED,
    AckBatch,
    Backlog,
    Cursor,
    Delivery,
    DeliveryRun,
    DroppedRow,
    Endings,
    Flow,
    Grant,
    Handed,
    MessageLog,
    Numbering,
    Outgoing,
    Piece,
    Refused,
    RefusedRow,
    RunCursor,
    SelectingCursor,
    Work,
    qos2,
    quarantine,
    shelf,
    skip_ahead,
)
from gateway.subscriptions import Subscription
from gateway.topic_memory import remember

__all__ = [
    "DAMAGED",
    "DONE",
    "EVICTED",
    "EXPIRED",
    "NAME_BYTES_MAX",
    "OVERSIZE",
    "REJECTED",
    "ROUTE_END",
    "SELECTED",
    "AckBatch",
    "Backlog",
    "Checked",
    "ConfigError",
    "ConfigSource",
    "Count",
    "Cursor",
    "Delivery",
    "DeliveryRun",
    "DroppedRow",
    "Endings",
    "Flow",
    "FrameError",
    "Frames",
    "Grant",
    "Handed",
    "Intake",
    "ListenError",
    "Message",
    "MessageLog",
    "NonEmpty",
    "Numbering",
    "Outgoing",
    "Peer",
    "Piece",
    "Refused",
    "RefusedRow",
    "RouteState",
    "RunCursor",
    "SelectingCursor",
    "Sender",
    "Services",
    "Shift",
    "Signal",
    "Slice",
    "Subscription",
    "Table",
    "Topics",
    "Trusting",
    "Window",
    "Work",
    "beside",
    "check_readable",
    "encode_frame",
    "identity_properties",
    "load_authorities",
    "load_own",
    "plain_properties",
    "qos2",
    "quarantine",
    "read_secret",
    "reason_of",
    "remember",
    "shelf",
    "skip_ahead",
]
