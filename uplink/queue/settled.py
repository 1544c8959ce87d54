"""What receipts say: which messages are settled, by origin [docs/reference/receipts.md]."""

from bisect import bisect_right

from wire.receipt import Receipt, Settled

ORIGINS_MOST = 50_000  # some 30 MB at most, where each receipt has all that one can say


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

    def note(self, origin: str, receipt: Receipt) -> str:
        """Takes a receipt; returns why it says nothing, "" if it counts."""
        before = self._receipts.get(origin)
        if before is None and len(self._receipts) >= ORIGINS_MOST:
            return f"there are receipts of more than {ORIGINS_MOST:,} origins"
        if before is not None and before.tables == receipt.tables and before.batch > receipt.batch:
            return f"it is of batch {receipt.batch}, and one of batch {before.batch} came before"
        for one in () if before is None else before.epochs:
            self._epochs.pop((origin, one.epoch), None)
        self._receipts[origin] = receipt
        self._epochs.update({(origin, one.epoch): one for one in receipt.epochs})
        return ""

    def up_to(self, origin: str, epoch: int, seq: int) -> int:
        """Returns the last of the numbers from ``seq`` on that are all settled; ``seq - 1`` if the first is not."""
        found = self._epochs.get((origin, epoch))
        if found is None or (self.tables and self._receipts[origin].tables != self.tables):
            return seq - 1
        if seq <= found.high:
            return found.high
        at = bisect_right(found.runs, seq, key=lambda run: run[0]) - 1
        return found.runs[at][1] if at >= 0 and seq <= found.runs[at][1] else seq - 1
