"""The receipts of the tables in a folder: made when they are asked for, and the same whenever they are made again."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cloud.job.lock import only_job
from cloud.receipts.landed import find_landed_ms
from cloud.receipts.settled import find_settled, read_facts
from cloud.receipts.signing import SigningKey
from cloud.storage.place import open_storage
from cloud.storage.storage import Storage
from cloud.tables.schema import LEDGER
from cloud.tables.tables import TableFolder, require_tables
from wire.receipt import (
    LANDED_TOPIC,
    RECEIPT_BYTES_MAX,
    RUNS_MOST,
    SIGNATURE_ROOM,
    LandedUpTo,
    Receipt,
    Settled,
    decode_landed,
    encode_landed,
    encode_receipt,
    join_signature,
    receipt_topic,
    signed_bytes,
    split_signature,
)

HEADS_FIRST = 8
"""The number of epochs, the newest, whose HIGH comes before any run of numbers beyond it."""


class Receipts:
    """What the tables have to say, as messages to be retained. `open_receipts` makes it.

    Attributes:
        tables: how receipts name these tables.
        batch: the last batch that counts.
        unnamed: origins of which there can be no receipt, as no MQTT topic can have their names.
    """

    def __init__(self, tables: TableFolder, landing: Storage, key: SigningKey | None) -> None:
        self._folder = tables
        self._landing = landing
        self._key = key
        self.tables = str(tables.stored(LEDGER).metadata.id)[:8]
        self.batch = tables.last_counting()
        self.unnamed: list[str] = []

    def landed(self) -> tuple[str, bytes]:
        """Returns topic and payload of the receipt for all that was landed. Raises OSError."""
        landed_ms = find_landed_ms(self._folder, self._landing, self.batch)
        return LANDED_TOPIC, self._signed(LANDED_TOPIC, encode_landed(LandedUpTo(self.tables, self.batch, landed_ms)))

    def published(self, payload: bytes) -> int | None:
        """Returns the batch of such a receipt that a broker has: all receipts up to there are with that broker.

        None if it says nothing of the kind: it is of other tables, of a batch that is still to come, or not signed as
        these receipts are.
        """
        try:
            part, signature = split_signature(payload)
            landed = decode_landed(payload)
        except ValueError:
            return None
        if landed.tables != self.tables or landed.batch > self.batch:
            return None
        if self._key is None:
            return None if signature else landed.batch
        return landed.batch if self._key.has_signed(signed_bytes(LANDED_TOPIC, part), signature) else None

    def of_origins(self, since: int | None = None) -> Iterator[tuple[str, bytes]]:
        """Yields topic and payload of each origin's receipt. Raises OSError.

        since: only of origins of which batches behind this one tell something.
        """
        for origin, epochs in find_settled(read_facts(self._folder, self.batch, since)):
            try:
                topic = receipt_topic(origin)
            except ValueError:
                self.unnamed.append(origin)
                continue
            room = RECEIPT_BYTES_MAX - (SIGNATURE_ROOM if self._key else 0)
            yield topic, self._signed(topic, encode_receipt(fit(Receipt(self.tables, self.batch, epochs), room)))

    def _signed(self, topic: str, part: bytes) -> bytes:
        return join_signature(part, self._key.sign(signed_bytes(topic, part))) if self._key else part


@contextmanager
def open_receipts(tables: Path | str, landing: Path | str, key: SigningKey | None = None) -> Iterator[Receipts]:
    """Opens the tables, to make receipts of what they hold; no job works on them meanwhile.

    Needs no Spark. All that the receipts tell is on the disk: what a killed job has committed is synced first.

    tables, landing: the folders, as `ingest` takes them. Without a landing folder no landing time is known.
    key: signs the receipts.

    Raises NoTables, OlderTables, NewerTables, JobRunning, ValueError for a bad URL, OSError.
    """
    require_tables(tables)
    with only_job(tables) as hold:
        yield Receipts(hold.open_tables(None, creating=False), open_storage(landing), key)


def fit(receipt: Receipt, room: int) -> Receipt:
    """Returns as much of a receipt as fits into some bytes, with RUNS_MOST runs at most.

    HIGH of the newest epochs comes first, then the runs of these epochs, of each the highest first, then HIGH of the
    others. It says nothing that the whole receipt does not say.
    """
    left = room - len(encode_receipt(receipt._replace(epochs=[Settled(0, 0, [])]))) + len("00000000:0")
    heads: list[Settled] = []
    taken: list[int] = []

    def take_heads(epochs: Sequence[Settled]) -> None:
        nonlocal left
        for one in epochs:
            size = len(f"{one.epoch:08x}:{one.high}") + (1 if heads else 0)
            if size > left:
                return
            left -= size
            heads.append(one)
            taken.append(0)

    take_heads(receipt.epochs[:HEADS_FIRST])
    runs_left = RUNS_MOST
    for place, one in enumerate(heads):
        for first, last in reversed(one.runs[-runs_left:] if runs_left else []):
            size = 1 + len(f"{first}-{last}" if first < last else f"{first}")
            if size > left:
                break
            left -= size
            runs_left -= 1
            taken[place] += 1
    if len(heads) == HEADS_FIRST:
        take_heads(receipt.epochs[HEADS_FIRST:])
    epochs = [one._replace(runs=one.runs[len(one.runs) - count :]) for one, count in zip(heads, taken, strict=True)]
    return receipt._replace(epochs=epochs)
