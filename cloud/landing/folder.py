"""A lander's side of the landing folder: one lander a name, leftovers removed, files numbered without holes."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from cloud import landing_file, manifest
from cloud.durable_file import hidden_name, write_durably
from cloud.landing_file import FileNumber, Row
from cloud.manifest import Manifest


class LanderRunning(Exception):
    """Another process lands under this name in this folder."""


class LandingFolder:
    """Where one lander lands. `leftovers` names the files of a killed lander that were removed when it opened.

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
        """Frees the name."""
        os.close(self._lock)

    def land(self, rows: Sequence[Row]) -> Manifest:
        """Writes the rows as one landing file with its manifest; both are on the disk when it returns.

        Raises OSError; then nothing of it counts, and the same rows may be landed again.
        """
        name = FileNumber(self.lander, self.boot, self._number)
        content = landing_file.encode_rows(rows)
        described = manifest.describe(name, rows, content)
        manifest_path = self.path / f"{name.stem}.json"
        try:
            write_durably(self.path / described.file, content)
            write_durably(manifest_path, msgspec.json.encode(described))
        finally:
            # A manifest that can be seen has spent its number, even when its sync failed: files are immutable.
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
            name = landing_file.parse_stem(path.stem)
            if name is not None and name.lander == self.lander:
                yield name

    def _find_leftovers(self) -> Iterator[Path]:
        for path in self.path.iterdir():
            name = landing_file.parse_stem(path.stem.removeprefix("."))
            if name is None or name.lander != self.lander or path.suffix not in (".parquet", ".json"):
                continue
            visible = path.with_name(path.name.removeprefix("."))
            if path == hidden_name(visible) or not visible.with_suffix(".json").exists():
                yield path
