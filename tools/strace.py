"""strace, where it is there and may trace."""

import shutil
import subprocess


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
