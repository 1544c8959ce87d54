"""The identities that a lander gives to messages that bring none.

Each start of a lander has an epoch of its own: on an older copy of its folder a lander would else give numbers that it
has given already, and the job would take those messages for others. The numbers have no holes, and a message that comes
again keeps its identity, also over a start. So a number is spent when the manifest of its file is there, and the
manifest says which packet identifiers the messages had. The broker sends a message again, with DUP and the same packet
identifier, if it has not read our acknowledgement.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

PACKETS_MAX = 65_535
"""There are no more packet identifiers: of older messages the broker has read the acknowledgements."""


class Landed(NamedTuple):
    """The messages of one landing file that the broker may send again: `packets` has the identifier of each row."""

    file_number: int
    packets: np.ndarray
    rows: pa.Table


class OwnStream:
    """The epoch and the numbers of one start of a lander. `last_seq` is the last number that is spent.

    Args:
        epoch: the epoch of its identities.
        landed: messages whose acknowledgements the broker may not have read, the oldest file first.
    """

    def __init__(self, epoch: int, landed: Iterable[Landed] = ()) -> None:
        self.epoch = epoch
        self.last_seq = 0
        self._landed = list(landed)

    @property
    def oldest_file(self) -> int | None:
        """The number of the oldest file with messages that the broker may send again; None if there are none."""
        return self._landed[0].file_number if self._landed else None

    def find(self, packet: int, topic: str, payload: bytes) -> tuple[int, int] | None:
        """Returns the epoch and the number of a message that has landed and comes again; None if it has not landed."""
        for landed in reversed(self._landed):
            found = np.flatnonzero(landed.packets == packet)
            if len(found):
                columns = ["topic", "payload", "epoch", "seq"]
                (row,) = landed.rows.slice(int(found[-1]), 1).select(columns).to_pylist()
                return (row["epoch"], row["seq"]) if (row["topic"], row["payload"]) == (topic, payload) else None
        return None

    def number(self, rows: pa.Table) -> tuple[pa.Table, int]:
        """Returns the rows with the next numbers in place of each `seq` 0, and the last number then.

        The numbers are spent once `spend` is called.
        """
        seqs = rows["seq"].to_numpy()
        (places,) = np.nonzero(seqs == 0)
        last = self.last_seq + len(places)
        if len(places):
            seqs, epochs = seqs.copy(), rows["epoch"].to_numpy().copy()
            seqs[places] = np.arange(self.last_seq + 1, last + 1)
            epochs[places] = self.epoch
            for name, column in (("seq", seqs), ("epoch", epochs)):
                rows = rows.set_column(rows.schema.get_field_index(name), rows.field(name), pa.array(column))
        return rows, last

    def spend(self, last_seq: int, file_number: int, packets: np.ndarray, rows: pa.Table) -> None:
        """The file with these rows counts. They are remembered until the broker has read their acknowledgements.

        last_seq: the last number that is spent now.
        packets: the packet identifier of each row with a number of ours, 0 for all others.
        """
        self.last_seq = last_seq
        (places,) = np.nonzero(packets)
        if len(places):
            self._landed.append(Landed(file_number, packets[places], rows.take(places)))
        while sum(len(landed.packets) for landed in self._landed[1:]) >= PACKETS_MAX:
            del self._landed[0]

    def confirm(self, file_number: int) -> bool:
        """The broker has read the acknowledgements of the files up to this one. Returns whether that is news."""
        remembered = len(self._landed)
        self._landed = [landed for landed in self._landed if landed.file_number > file_number]
        return len(self._landed) < remembered


def encode_packets(packets: np.ndarray) -> list[tuple[int, int, int]]:
    """Returns (row, packet identifier, count) of consecutive rows with consecutive packet identifiers other than 0."""
    (rows,) = np.nonzero(packets)
    if not len(rows):
        return []
    numbers = packets[rows].astype(np.int64)
    (cuts,) = np.nonzero((np.diff(rows) != 1) | (np.diff(numbers) != 1))
    firsts = np.concatenate(([0], cuts + 1))
    counts = np.diff(np.append(firsts, len(rows)))
    return list(zip(rows[firsts].tolist(), numbers[firsts].tolist(), counts.tolist(), strict=True))


def decode_packets(runs: Iterable[tuple[int, int, int]], rows: int) -> np.ndarray:
    """Returns the packet identifier of each of ``rows`` rows, 0 where it has none. Raises ValueError for a bad run."""
    packets = np.zeros(rows, np.uint16)
    for row, packet, count in runs:
        if min(row, packet - 1, count - 1, rows - row - count, PACKETS_MAX + 1 - packet - count) < 0:
            raise ValueError(f"packet identifiers [{row}, {packet}, {count}] of {rows} rows")
        packets[row : row + count] = np.arange(packet, packet + count)
    return packets
