"""The gateway's durable message store: what other folders may use of it.

`MessageLog` is the log: it stores messages, and hands them out to consumers. A consumer reads with a `Cursor`, which
saves how far it has got; a session's is a `RunCursor`. A `Feed` gives
what is published from now on to a part of the gateway. QoS 2 messages that a session or a route sends are in
`Outgoing`. A message that a consumer does not get leaves a range of identities, with a reason such as `EVICTED`.
`Endings` scans the log for consumers that have ended.

The modules `connectors`, `qos2`, `retained` and `wills` hold rows of their tables, and return what the log writes in a
transaction (`Work`). `quotas` counts what waits for one consumer against limits, `consumer_names` says how the names
of consumers begin, and `disk` how full a disk is. `quarantine` lists what was set aside because the medium has changed
it, and `shelf` is a dictionary on disk. `gateway.store.repair`, which has a face of its own, works on stores that no
gateway has open.

docs/explanation/gateway-store.md draws the design: rows, cursors, group commit, the WAL, and each power cut.
"""

from gateway.store import consumer_names
from gateway.store.client_quotas import ClientQuotas
from gateway.store.consumers import quotas
from gateway.store.consumers.backlog_count import count_backlogs, skip_ahead
from gateway.store.consumers.cursor import Cursor
from gateway.store.consumers.delivery import (
    HAND_OUT_BYTES_MAX,
    Backlog,
    Delivery,
    Grant,
    ReasonToDrop,
    grant_by,
    grants_apart,
)
from gateway.store.consumers.feed import Feed
from gateway.store.consumers.group_cursor import GroupCursor
from gateway.store.consumers.run_cursor import Piece, RunCursor
from gateway.store.consumers.runs import DeliveryRun
from gateway.store.endings import Endings
from gateway.store.group_commit import AckBatch, AckOrder
from gateway.store.log import MessageLog
from gateway.store.qos2_out import Outgoing
from gateway.store.routes.hand_over import hand_over
from gateway.store.routes.kept import Kept
from gateway.store.routes.lane_cursor import LaneCursor
from gateway.store.routes.left_out import LeftOut
from gateway.store.routes.refused import Refused
from gateway.store.seen import SeenNote, Standing, masks_of_batch
from gateway.store.sqlite import disk, quarantine, shelf, wal
from gateway.store.sqlite.folder import MESSAGES, why_unusable
from gateway.store.tables import connectors, drops, qos2, retained, sessions, wills
from gateway.store.tables.log_rows import Part, PublishBatch, Work
from gateway.store.tables.refused import RefusedRow
from gateway.store.tables.routes import Handed, Numbering
from gateway.store.tables.seen import Masks, masks_of
from gateway.store.unseen_drops import UnseenDrops

__all__ = [
    "HAND_OUT_BYTES_MAX",
    "MESSAGES",
    "AckBatch",
    "AckOrder",
    "Backlog",
    "ClientQuotas",
    "Cursor",
    "Delivery",
    "DeliveryRun",
    "Endings",
    "Feed",
    "Grant",
    "GroupCursor",
    "Handed",
    "Kept",
    "LaneCursor",
    "LeftOut",
    "Masks",
    "MessageLog",
    "Numbering",
    "Outgoing",
    "Part",
    "Piece",
    "PublishBatch",
    "ReasonToDrop",
    "Refused",
    "RefusedRow",
    "RunCursor",
    "SeenNote",
    "Standing",
    "UnseenDrops",
    "Work",
    "connectors",
    "consumer_names",
    "count_backlogs",
    "disk",
    "drops",
    "grant_by",
    "grants_apart",
    "hand_over",
    "masks_of",
    "masks_of_batch",
    "qos2",
    "quarantine",
    "quotas",
    "retained",
    "sessions",
    "shelf",
    "skip_ahead",
    "wal",
    "why_unusable",
    "wills",
]
