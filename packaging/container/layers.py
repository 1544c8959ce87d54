"""The layers of an image as tar archives whose bytes depend on their content alone."""

import io
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

PROGRAM, FILE, FOLDER = 0o755, 0o644, 0o755


class Layer:
    """An archive that is being written. Everything in it belongs to root unless another owner is given."""

    def __init__(self, archive: tarfile.TarFile, epoch: int) -> None:
        self._archive = archive
        self._epoch = epoch

    def folder(self, name: str, mode: int = FOLDER, owner: int = 0) -> None:
        self._add(name, tarfile.DIRTYPE, mode, owner)

    def link(self, name: str, target: str) -> None:
        self._add(name, tarfile.SYMTYPE, 0o777, target=target)

    def file(self, name: str, content: bytes, mode: int = FILE) -> None:
        self._add(name, tarfile.REGTYPE, mode, content=content)

    def tree(self, source: Path, name: str) -> None:
        """Adds a folder with all that is in it, in the order of the names; a program stays one."""
        self.folder(name)
        for path in sorted(source.rglob("*")):
            inside = f"{name}/{path.relative_to(source)}"
            if path.is_symlink():
                self.link(inside, str(path.readlink()))
            elif path.is_dir():
                self.folder(inside)
            else:
                self.file(inside, path.read_bytes(), PROGRAM if path.stat().st_mode & stat.S_IXUSR else FILE)

    def copy(self, source: tarfile.TarFile, left_out: tuple[str, ...]) -> dict[str, bytes]:
        """Adds what another archive has, but for paths that match a pattern; returns the certificates in it."""
        certificates = {}
        for member in source:
            path = PurePosixPath(member.name)
            if any(path.match(pattern) for pattern in left_out) or path == PurePosixPath("."):
                continue
            content = source.extractfile(member) if member.isreg() else None
            member.mtime, member.uname, member.gname, member.pax_headers = self._epoch, "", "", {}
            self._archive.addfile(member, content)
            if content is not None and path.match("usr/share/ca-certificates/mozilla/*.crt"):
                content.seek(0)
                certificates[path.name] = content.read()
        return certificates

    def _add(
        self, name: str, kind: bytes, mode: int, owner: int = 0, *, target: str = "", content: bytes = b""
    ) -> None:
        member = tarfile.TarInfo(name)
        member.type, member.mode, member.mtime, member.linkname = kind, mode, self._epoch, target
        member.uid = member.gid = owner
        member.size = len(content)
        self._archive.addfile(member, io.BytesIO(content))


@contextmanager
def layer(file: Path, epoch: int) -> Iterator[Layer]:
    """Yields a layer that is whole in its file afterwards. ``epoch`` is the time of all files, Unix seconds."""
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as archive:
        yield Layer(archive, epoch)
