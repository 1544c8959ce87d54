"""The landing folder as a lander uses it: one process a name, leftovers removed, files numbered without holes."""

import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from cloud.landing import file, manifest
from cloud.landing.durable_file import hidden_name, write_durably
from cloud.landing.file import FileNumber, Row
from cloud.landing.manifest import Manifest


class LanderRunning(Exception):
    """Another process lands under this name in this folder."""


class LandingFolder:
    """The folder of one lander. `leftovers` names the files of a killed lander that were removed when it was opened.

    A leftover is a hidden file, or a landing file without its manifest. Its messages were never acknowledged, so
    the broker sends them again.
    """

    def __init__(self, path: Path, lander: str, boot: int) -> None:
        """Raises OSError when the folder cannot be used, LanderRunning when the name is taken."""
        self.path = path
        self.lander = lander
        self.boot = boot
        path.mkdir(parents=True, exist_ok=True)
        self._lock = self._take_lock()
        self.leftovers = sorted(path.name for path in self._find_leftovers())
        for name in self.leftovers:
            (path / name).unlink()
        self._number = 1 + max((name.number for name in self._landed()), default=0)

    def close(self) -> None:
        """Lets another process use the name."""
        os.close(self._lock)

    def land(self, pieces: Iterable[Row | pa.Table]) -> Manifest:
        """Writes rows, and tables of rows, as one landing file with its manifest. Both are on the disk when it returns.

        Raises OSError. Then the file does not count, and the same rows may be landed again.
        """
        name = FileNumber(self.lander, self.boot, self._number)
        rows = file.join(pieces)
        content = file.encode(rows)
        described = manifest.describe(name, rows, content)
        manifest_path = self.path / f"{name.stem}.json"
        try:
            write_durably(self.path / described.file, content)
            write_durably(manifest_path, msgspec.json.encode(described))
        finally:
            # Landing files never change, so the number of a visible manifest is spent, even where its sync failed.
            if manifest_path.exists():
                self._number += 1
        return described

    def _take_lock(self) -> int:
        descriptor = os.open(self.path / f".{self.lander}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise LanderRunning(f"a lander called {self.lander} is already landing in {self.path}") from None
        return descriptor

    def _landed(self) -> Iterator[FileNumber]:
        for path in self.path.glob("*.json"):
            name = file.parse_stem(path.stem)
            if name is not None and name.lander == self.lander:
                yield name

    def _find_leftovers(self) -> Iterator[Path]:
        for path in self.path.iterdir():
            name = file.parse_stem(path.stem.removeprefix("."))
            if name is None or name.lander != self.lander or path.suffix not in (".parquet", ".json"):
                continue
            visible = path.with_name(path.name.removeprefix("."))
            if path == hidden_name(visible) or not visible.with_suffix(".json").exists():
                yield path
