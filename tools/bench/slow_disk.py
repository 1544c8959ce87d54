"""A disk that syncs as slowly as an SD card: strace holds back each return of ``fdatasync`` and ``fsync``."""

from tools import strace

DELAY_MS = 5


def slowed(argv: list[str]) -> list[str]:
    """The same command, on such a disk; its process is the command itself, strace's a child of it."""
    delay = strace.tampering_with_syncs(f"delay_exit={DELAY_MS * 1000}")
    return ["strace", "-D", "--seccomp-bpf", *delay, *argv]
