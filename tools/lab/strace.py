"""strace, where it is there and may trace."""

import shutil
import subprocess

SYNCS = "fdatasync,fsync"
SLOW_SYNC_MS = 5  # as on an SD card


class StraceUnavailable(Exception):
    """It is not there, or may not trace; the text says so."""


def check() -> None:
    """Raises StraceUnavailable."""
    if shutil.which("strace") is None:
        raise StraceUnavailable("strace is not installed (apt install strace)")
    try:
        subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=True)
    except subprocess.CalledProcessError as error:
        raise StraceUnavailable(f"strace cannot trace here: {error.stderr.decode().strip()}") from error


def tampering_with_syncs(how: str) -> list[str]:
    """The options with which each sync of a process and its threads is tampered with: "error=EIO", say [strace(1)]."""
    return ["-f", "-o", "/dev/null", "-e", f"trace={SYNCS}", "-e", f"inject={SYNCS}:{how}"]


def slowed(argv: list[str]) -> list[str]:
    """Returns a command that runs `argv` with slow syncs; strace is a child of the started process."""
    return ["strace", "-D", "--seccomp-bpf", *tampering_with_syncs(f"delay_exit={SLOW_SYNC_MS * 1000}"), *argv]
