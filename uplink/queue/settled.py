"""What receipts say: which messages are settled, by origin [docs/reference/receipts.md]."""

from bisect import bisect_right

from wire.receipt import LandedUpTo, Receipt, Settled

SAID_MOST = 150_000
"""The most origins, epochs and runs that are known, together: some 50 MB. A receipt can have 90 epochs."""


class SettledMessages:
    """The newest receipt of each origin.

    A receipt takes the place of the one before, as tables that were restored may hold less. One of an earlier batch of
    the same tables is an old one, and says nothing. ``tables`` names the tables that there are now, "" as long as that
    is not known: a broker may still have receipts of former ones, and these prove nothing of the present ones.
    """

    def __init__(self) -> None:
        self.tables = ""
        self._receipts: dict[str, Receipt] = {}
        self._epochs: dict[tuple[str, int], Settled] = {}
        self._said = 0
        self._batch = 0

    def note_tables(self, landed: LandedUpTo) -> str:
        """Takes the receipt for all that was landed; returns why it says nothing, "" if it counts."""
        if landed.tables == self.tables and landed.batch < self._batch:
            return f"it is of batch {landed.batch}, and one of batch {self._batch} came before"
        self.tables, self._batch = landed.tables, landed.batch
        return ""

    def note(self, origin: str, receipt: Receipt) -> str:
        """Takes a receipt; returns why it says nothing, "" if it counts."""
        before = self._receipts.get(origin)
        if before is not None and before.tables == receipt.tables and before.batch > receipt.batch:
            return f"it is of batch {receipt.batch}, and one of batch {before.batch} came before"
        if before is not None:
            self._forget(origin, before)  # also if there is no room for what comes now: it may claim less
        if self._said + _said_by(receipt) > SAID_MOST:
            return f"the receipts of {len(self._receipts):,} origins say all that there is room for"
        self._said += _said_by(receipt)
        self._receipts[origin] = receipt
        self._epochs.update({(origin, one.epoch): one for one in receipt.epochs})
        return ""

    def _forget(self, origin: str, receipt: Receipt) -> None:
        del self._receipts[origin]
        self._said -= _said_by(receipt)
        for one in receipt.epochs:
            del self._epochs[origin, one.epoch]

    def up_to(self, origin: str, epoch: int, seq: int) -> int:
        """Returns the last of the numbers from ``seq`` on that are all settled; ``seq - 1`` if the first is not."""
        found = self._epochs.get((origin, epoch))
        if found is None or (self.tables and self._receipts[origin].tables != self.tables):
            return seq - 1
        if seq <= found.high:
            return found.high
        at = bisect_right(found.runs, seq, key=lambda run: run[0]) - 1
        return found.runs[at][1] if at >= 0 and seq <= found.runs[at][1] else seq - 1


def _said_by(receipt: Receipt) -> int:
    """Returns how many epochs and runs there are in a receipt, with its origin."""
    return 1 + sum(1 + len(one.runs) for one in receipt.epochs)
