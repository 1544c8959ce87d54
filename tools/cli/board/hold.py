"""One run of `holdfast flash` at a time at one port: between two processes of a maker's tool the port is free."""

import errno
import hashlib
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tools.cli.board.errors import Refused


@contextmanager
def held(port: str) -> Iterator[None]:
    """Keeps other runs from a port, until the context or the process ends.

    The lock is a name of Linux's abstract sockets, of which nothing is left behind. Other systems have no lock.

    Raises:
        Refused: another run is at the port, also under another name of it.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    real = port if "://" in port else os.path.realpath(port)
    name = hashlib.sha256(os.fsencode(real)).hexdigest()
    with socket.socket(socket.AF_UNIX) as lock:
        try:
            lock.bind(f"\0holdfast flash {name}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise Refused(f"{port}: another `holdfast flash` is at this port; wait until it has ended") from error
        yield
