"""A disk that syncs as slowly as an SD card: strace holds back each return of ``fdatasync`` and ``fsync``."""

DELAY_MS = 5
CALLS = "fdatasync,fsync"


def slowed(argv: list[str]) -> list[str]:
    """The same command, on such a disk; its process is the command itself, strace's a child of it."""
    delay = f"inject={CALLS}:delay_exit={DELAY_MS * 1000}"
    return ["strace", "-D", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", f"trace={CALLS}", "-e", delay, *argv]
