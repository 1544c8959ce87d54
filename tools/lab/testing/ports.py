"""TCP ports of the loopback address for servers of tests and runs: no two processes of a machine are given the same."""

import contextlib
import random
import socket

LISTENING_PORTS = (10_000, 32_768)  # Linux gives outgoing connections those from 32768 on
BLOCK = 128  # ports that a process takes at once


class _Ports:
    """The ports that this process may give out: blocks that no other process has, until this one ends.

    A process has a block while it has bound an abstract Unix socket with the block's name [unix(7)].
    """

    def __init__(self) -> None:
        self._claims: list[socket.socket] = []
        self._left: list[int] = []

    def next(self) -> int:
        """Returns a port that was not given out before. Raises OSError if other processes have all the rest."""
        if not self._left:
            self._left = self._claim_block()
        return self._left.pop()

    def _claim_block(self) -> list[int]:
        firsts = range(*LISTENING_PORTS, BLOCK)
        for first in random.sample(firsts, len(firsts)):
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0holdfast ports from {first}")
            except OSError:
                claim.close()
                continue
            self._claims.append(claim)
            return list(range(first, min(first + BLOCK, LISTENING_PORTS[1])))
        raise OSError("each port to listen on is taken")


_ports = _Ports()


def free_port() -> int:
    """Returns a TCP port of the loopback address on which nothing listens now, and that `free_port` gives to no other
    process while this one runs. It is below the ports that the system gives to outgoing connections, so that it can be
    listened on again later. Raises OSError if all are taken."""
    while True:
        port = _ports.next()
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
