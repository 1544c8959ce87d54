"""All of the gateway that a route uses: ``uplink`` imports from here and from nowhere else in ``gateway``."""

from gateway.auth.permissions import Trusting
from gateway.config.errors import Checked, ConfigSource
from gateway.config.kinds import NAME_BYTES_MAX, Count, NonEmpty
from gateway.config.load import Table, beside, check_readable, read_secret
from gateway.config.network import Hops, Mode, SelectConfig, ZoneName, errors_in_filter
from gateway.config.pem import Validity, load_authorities, load_own, reason_of, validities
from gateway.connection.publish_in import Intake, Realtime, Topics
from gateway.connection.services import Services
from gateway.counters import Counters, LinkStatus, RouteState
from gateway.delivery import Peer, RetainedCursor, RetainedSearch, Sender, Wanted, Window
from gateway.errors import ConfigError, ListenError
from gateway.filters.filter_tree import FilterTree
from gateway.message import Message, identity_properties, plain_properties
from gateway.network import Network
from gateway.network.announcements import BadAnnouncement, Heard, decode_mark
from gateway.network.conditions import Conditions
from gateway.network.disjoint import disjoint
from gateway.network.interest import Change, changes_for
from gateway.network.link import (
    ANEW_PROPERTY,
    HEARD_PROPERTY,
    INTEREST_TOPIC,
    LINK_PROPERTY,
    LINKS_TOPIC,
    RENEW_PROPERTY,
    BadLink,
    FilterSum,
    LinkSettings,
    check_conditions,
    decode_link,
    encode_link,
)
from gateway.network.topology import BadLinkStates
from gateway.network.zones import Side, Zone
from gateway.observe.links import Links, describe_all
from gateway.pace import Shift, Slice
from gateway.selectors import Selector
from gateway.sessions.copies import Copies
from gateway.signals import Signal
from gateway.store import (
    BACKFILL_PREFIX,
    AckBatch,
    Backlog,
    Cursor,
    Delivery,
    DeliveryRun,
    Endings,
    Grant,
    Handed,
    LaneCursor,
    LeftOut,
    MessageLog,
    Numbering,
    OriginShares,
    Outgoing,
    Piece,
    ReasonToDrop,
    Refused,
    RefusedRow,
    RunCursor,
    SelectingCursor,
    Work,
    drops,
    hand_over,
    qos2,
    quarantine,
    retained,
    sessions,
    shelf,
    skip_ahead,
    wills,
)
from gateway.subscriptions import Subscription
from gateway.topic_memory import remember
from wire.bulk.websocket_frames import CloseCode, FrameError, FrameKind, Frames, encode_frame

__all__ = [
    "ANEW_PROPERTY",
    "BACKFILL_PREFIX",
    "HEARD_PROPERTY",
    "INTEREST_TOPIC",
    "LINKS_TOPIC",
    "LINK_PROPERTY",
    "NAME_BYTES_MAX",
    "RENEW_PROPERTY",
    "AckBatch",
    "Backlog",
    "BadAnnouncement",
    "BadLink",
    "BadLinkStates",
    "Change",
    "Checked",
    "CloseCode",
    "Conditions",
    "ConfigError",
    "ConfigSource",
    "Copies",
    "Count",
    "Counters",
    "Cursor",
    "Delivery",
    "DeliveryRun",
    "Endings",
    "FilterSum",
    "FilterTree",
    "FrameError",
    "FrameKind",
    "Frames",
    "Grant",
    "Handed",
    "Heard",
    "Hops",
    "Intake",
    "LaneCursor",
    "LeftOut",
    "LinkSettings",
    "LinkStatus",
    "Links",
    "ListenError",
    "Message",
    "MessageLog",
    "Mode",
    "Network",
    "NonEmpty",
    "Numbering",
    "OriginShares",
    "Outgoing",
    "Peer",
    "Piece",
    "Realtime",
    "ReasonToDrop",
    "Refused",
    "RefusedRow",
    "RetainedCursor",
    "RetainedSearch",
    "RouteState",
    "RunCursor",
    "SelectConfig",
    "SelectingCursor",
    "Selector",
    "Sender",
    "Services",
    "Shift",
    "Side",
    "Signal",
    "Slice",
    "Subscription",
    "Table",
    "Topics",
    "Trusting",
    "Validity",
    "Wanted",
    "Window",
    "Work",
    "Zone",
    "ZoneName",
    "beside",
    "changes_for",
    "check_conditions",
    "check_readable",
    "decode_link",
    "decode_mark",
    "describe_all",
    "disjoint",
    "drops",
    "encode_frame",
    "encode_link",
    "errors_in_filter",
    "hand_over",
    "identity_properties",
    "load_authorities",
    "load_own",
    "plain_properties",
    "qos2",
    "quarantine",
    "read_secret",
    "reason_of",
    "remember",
    "retained",
    "sessions",
    "shelf",
    "skip_ahead",
    "validities",
    "wills",
]
