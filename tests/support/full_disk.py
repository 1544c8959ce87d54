"""A disk that is full: a small one in memory, mounted in a namespace of the test's own."""

import subprocess
from pathlib import Path

import pytest

from tests.house.repository import ROOT

DISK_BYTES = 24_000_000


class FullDisk:
    """A disk that can be filled; programs that look at it run inside the namespace in which it is mounted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        script = f"mount -t tmpfs -o size={DISK_BYTES} none {path} && echo ready && read end"
        argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
        self._holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            self.close()
            pytest.skip("this user may make no namespace with a disk of its own (unshare)")

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.inside(*argv), capture_output=True, text=True, check=False, timeout=60)

    def inside(self, *argv: str) -> list[str]:
        """Returns the command that runs another one where the disk is."""
        enter = ["nsenter", "--target", str(self._holder.pid), "--user", "--mount", "--preserve-credentials", "--"]
        return [*enter, "sh", "-c", f'cd {ROOT} && exec "$@"', "sh", *argv]

    def copy(self, source: Path, target: Path) -> None:
        """Copies a folder to the disk, or from it."""
        done = self.run("cp", "-a", str(source), str(target))
        assert done.returncode == 0, done.stderr

    def fill(self, but: int = 0) -> None:
        """Fills all but `but` bytes."""
        self.run("dd", "if=/dev/zero", f"of={self.path}/others", "bs=4096")
        if but:
            self.run("truncate", f"--size=-{but}", f"{self.path}/others")

    def files(self) -> set[str]:
        """Returns the paths of all files and folders."""
        return set(self.run("find", str(self.path)).stdout.splitlines())

    def close(self) -> None:
        with self._holder:
            self._holder.kill()
