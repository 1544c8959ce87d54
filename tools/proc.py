"""What Linux says of a process [proc(5)]."""

from pathlib import Path


def io(pid: int, key: str) -> int:
    """A counter of /proc/PID/io, in bytes or calls. Raises KeyError and OSError."""
    text = Path(f"/proc/{pid}/io").read_text()
    return int(dict(line.split(": ") for line in text.splitlines())[key])
