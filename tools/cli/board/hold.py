"""One run of `holdfast flash` at a time at one port: between two processes of a maker's tool the port is free."""

import errno
import hashlib
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tools.cli.board.errors import Refused

TRIES, PAUSE_S = 10, 0.1


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
        if not _bind(lock, f"\0holdfast flash {name}"):
            raise Refused(f"{port}: another `holdfast flash` is at this port; wait until it has ended")
        yield


def _bind(lock: socket.socket, name: str) -> bool:
    """Binds the lock to its name; returns False if another one has it.

    A program that another thread of this process starts has a copy of the former lock until it runs. So this tries for
    a moment.
    """
    for _ in range(TRIES):
        try:
            lock.bind(name)
            return True
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            time.sleep(PAUSE_S)
    return False
