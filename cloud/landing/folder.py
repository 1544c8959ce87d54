"""The landing folder as a lander uses it: one process a name, leftovers removed, files numbered without holes."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cloud.landing import file, manifest
from cloud.landing.file import FileNumber, Row
from cloud.landing.manifest import Manifest, ManifestError, OwnNumbers, load_manifest
from cloud.landing.own_stream import Landed, OwnStream, decode_packets, encode_packets
from cloud.storage.place import open_storage
from cloud.storage.storage import Storage


class LanderRunning(Exception):
    """Another process lands under this name in this folder."""


class SyncFailed(OSError):
    """A file and its manifest may be visible, but not on the disk. `rows` are its rows, with their numbers."""

    def __init__(self, error: OSError, rows: pa.Table) -> None:
        super().__init__(error.errno, error.strerror or str(error))
        self.rows = rows


class LandingFolder:
    """The folder of one lander. `leftovers` names the files of a killed lander that were removed when it was opened.

    A leftover is a hidden file, or a landing file without its manifest. Its messages were never acknowledged, so
    the broker sends them again. `own` are the identities that the lander gives.
    """

    def __init__(self, place: Path | Storage, lander: str, boot: int) -> None:
        """Raises OSError when the folder cannot be used, LanderRunning when the name is taken."""
        self.storage = open_storage(place)
        self.lander = lander
        self.boot = boot
        if not self.storage.lock(f".{lander}.lock"):
            raise LanderRunning(f"a lander called {lander} is already landing in {self.storage}")
        found = set(self.storage.names())
        self.leftovers = sorted(self._find_leftovers(found))
        for name in self.leftovers:
            self.storage.remove(name)
        names = sorted(self._landed(found), key=lambda name: name.number)
        self._number = 1 + names[-1].number if names else 1
        self.own = OwnStream(boot, self._find_unconfirmed(names))

    def close(self) -> None:
        """Lets another process use the name."""
        self.storage.unlock()

    def land(self, pieces: Iterable[Row | pa.Table], packets: np.ndarray | None = None) -> Manifest:
        """Writes rows, and tables of rows, as one landing file with its manifest. Both are on the disk when it returns.

        Raises OSError: the file does not count, and the same rows may be landed again. Raises SyncFailed: it may
        count, and its rows are to be landed again, with the numbers that they have in it.

        pieces: rows whose `seq` is 0 get the next identities of the lander.
        packets: the packet identifier of each row that gets, or got, its identity here; 0 for the others.
        """
        name = FileNumber(self.lander, self.boot, self._number)
        rows, last_seq = self.own.number(file.join(pieces))
        packets = np.zeros(rows.num_rows, np.uint16) if packets is None else packets
        oldest = self.own.oldest_file or name.number
        places = file.by_origin(rows)
        sorted_rows = rows.take(places)
        own = OwnNumbers(self.own.epoch, last_seq, oldest, encode_packets(packets[places]))
        content = file.encode(sorted_rows)
        described = manifest.describe(name, sorted_rows, content, own)
        self.storage.write(described.file, content)
        try:
            self.storage.write(f"{name.stem}.json", msgspec.json.encode(described))
        except OSError as error:
            # Landing files never change, so what a visible manifest says is spent, even where its sync failed.
            if not self.storage.may_have(f"{name.stem}.json"):
                raise
            self._spend(last_seq, packets, rows)
            raise SyncFailed(error, rows) from error
        self._spend(last_seq, packets, rows)
        return described

    @property
    def last_number(self) -> int:
        """The number of the newest landing file, 0 before the first."""
        return self._number - 1

    def confirm(self, number: int) -> None:
        """The broker has read the acknowledgements of the files up to this number. Raises OSError.

        Without this on the disk, a later message could be taken for one of these files that comes again.
        """
        if self.own.confirm(number):
            self.storage.write(f".{self.lander}.confirmed", msgspec.json.encode({"number": number}))

    def _spend(self, last_seq: int, packets: np.ndarray, rows: pa.Table) -> None:
        self.own.spend(last_seq, self._number, packets, rows)
        self._number += 1

    def _find_unconfirmed(self, names: list[FileNumber]) -> Iterator[Landed]:
        """Returns the messages that the broker may send again, as the last manifest says."""
        try:
            last = self._read_manifest(names[-1]).own if names else None
        except ManifestError:
            last = None
        if last is None:
            return iter(())
        first = max(last.unconfirmed_from, 1 + self._read_confirmed())
        return filter(None, (self._read_landed(name) for name in names if name.number >= first))

    def _read_confirmed(self) -> int:
        try:
            return int(
                msgspec.json.decode(self.storage.read(f".{self.lander}.confirmed"), type=dict[str, int])["number"]
            )
        except (OSError, msgspec.MsgspecError, KeyError):
            return 0

    def _read_landed(self, name: FileNumber) -> Landed | None:
        """Returns the messages of a file that the broker may send again; None where it cannot be read any more."""
        try:
            described = self._read_manifest(name)
            if described.own is None or not described.own.packets:
                return None
            content = pq.ParquetFile(pa.BufferReader(self.storage.read(described.file)))
            rows = content.read(["topic", "payload", "epoch", "seq"])
            packets = decode_packets(described.own.packets, rows.num_rows)
        except (ManifestError, OSError, ValueError):  # of Arrow's errors those of a bad file are of this class
            return None
        (places,) = np.nonzero(packets)
        return Landed(name.number, packets[places], rows.take(places))

    def _read_manifest(self, name: FileNumber) -> Manifest:
        return load_manifest(self.storage, name.stem)

    def _landed(self, found: set[str]) -> Iterator[FileNumber]:
        for path in map(Path, found):
            name = file.parse_stem(path.stem)
            if path.suffix == ".json" and name is not None and name.lander == self.lander:
                yield name

    def _find_leftovers(self, found: set[str]) -> Iterator[str]:
        for path in map(Path, found):
            name = file.parse_stem(path.stem.removeprefix("."))
            if name is None or name.lander != self.lander or path.suffix not in (".parquet", ".json"):
                continue
            if path.name.startswith(".") or f"{path.stem}.json" not in found:
                yield path.name
