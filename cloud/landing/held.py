"""The messages that a lander has received and not landed yet."""

from collections.abc import Iterator, Sequence
from sys import getsizeof
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloud.landing.file import SCHEMA, Row
from wire.receipt import LANDED_TOPIC, RECEIPT_TOPICS

ROWS_MAX = 100_000
BYTES_MAX = 64 << 20
RECEIVE_MAXIMUM = 65_534
"""The most messages that a broker sends ahead of their acknowledgements: one less than MQTT allows.

A CONNECT need not say 65,535: the absence of the property means it. But mosquitto 2.0.11 then takes its own limit, and
sends more than either allows. It keeps to a smaller number, which is said.
"""
ROW_OVERHEAD = 400
"""Bytes of memory of a row besides its texts and its payload, at most; of a table, beside its columns, too."""


class Piece(NamedTuple):
    """What came together: a row, or a table of rows.

    `identifiers` are the packet identifiers to acknowledge, none at QoS 0. `packets` has that of each row which gets,
    or has got, its identity from the lander, and 0 for the others.
    """

    rows: Row | pa.Table
    identifiers: Sequence[int]
    packets: Sequence[int] | np.ndarray

    @property
    def size(self) -> int:
        """How many rows there are."""
        return 1 if isinstance(self.rows, Row) else int(self.rows.num_rows)

    def without_receipts(self) -> "Piece":
        """Returns it without receipts: what the tables tell others is no message for them, and is acknowledged only."""
        if isinstance(self.rows, Row):
            is_receipt = self.rows.topic == LANDED_TOPIC or self.rows.topic.startswith(RECEIPT_TOPICS)
            return self._replace(rows=SCHEMA.empty_table(), packets=()) if is_receipt else self
        topics = self.rows["topic"]
        is_receipt = pc.or_(pc.equal(topics, LANDED_TOPIC), pc.starts_with(topics, RECEIPT_TOPICS))
        if not pc.any(is_receipt).as_py():
            return self
        stays = pc.invert(is_receipt)
        return self._replace(rows=self.rows.filter(stays), packets=np.asarray(self.packets)[stays.to_numpy()])

    @property
    def memory(self) -> int:
        """Bytes of memory that the rows take, roughly."""
        if isinstance(self.rows, Row):
            texts = [field for field in self.rows if isinstance(field, str | bytes)]
            texts += [text for link in self.rows.via for text in (link.gateway, link.route)]
            return ROW_OVERHEAD * (1 + len(self.rows.via)) + sum(map(getsizeof, texts))
        return ROW_OVERHEAD + int(self.rows.nbytes)


class Held:
    """Pieces in order of arrival. The broker has custody of those with packet identifiers until these are acknowledged.

    Pieces of QoS 0 are held here alone.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets all rows and packet identifiers."""
        self.pieces: list[Piece] = []
        self.rows = 0
        self.memory = 0
        self.unacknowledged: list[int] = []

    def add(self, piece: Piece) -> None:
        """Adds what came together."""
        self.pieces.append(piece)
        self.rows += piece.size
        self.memory += piece.memory
        self.unacknowledged += piece.identifiers

    @property
    def full(self) -> bool:
        """Whether it is time to land, however young the rows are."""
        return self.rows >= ROWS_MAX or self.memory >= BYTES_MAX or len(self.unacknowledged) >= RECEIVE_MAXIMUM

    def packets(self) -> np.ndarray:
        """The packet identifier of each row with an identity of the lander, 0 for all others."""
        columns = [np.asarray(piece.packets, np.uint16) for piece in self.pieces]
        return np.concatenate(columns) if columns else np.zeros(0, np.uint16)

    def replace_rows(self, rows: pa.Table) -> None:
        """Puts rows in the place of all that are held: the same ones, with their numbers."""
        self.pieces = list(self._replaced(rows))

    def leave_to_broker(self) -> None:
        """Drops the pieces of QoS 1: the broker still has them and sends them again."""
        kept = [piece for piece in self.pieces if not piece.identifiers]
        self.clear()
        for piece in kept:
            self.add(piece)

    def forget_session(self) -> None:
        """Forgets the packet identifiers, since the broker has lost the session. The rows stay."""
        kept = [piece._replace(identifiers=(), packets=np.zeros(piece.size, np.uint16)) for piece in self.pieces]
        self.clear()
        for piece in kept:
            self.add(piece)

    def _replaced(self, rows: pa.Table) -> Iterator[Piece]:
        at = 0
        for piece in self.pieces:
            yield piece._replace(rows=rows.slice(at, piece.size))
            at += piece.size
