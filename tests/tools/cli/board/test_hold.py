"""One `holdfast flash` at a port at a time, and the next one right behind it."""

import os
import threading
from contextlib import suppress

from tools.cli.board.hold import held


def sockets() -> dict[str, int]:
    """This process's sockets, by what names them."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one by which the folder is read
            found[os.readlink(f"/proc/self/fd/{number}")] = int(number)
    return {name: number for name, number in found.items() if name.startswith("socket:")}


def test_a_program_that_starts_while_a_run_ends_does_not_keep_the_next_one_from_the_port() -> None:
    before = sockets()
    with held("/dev/none"):
        (lock,) = (number for name, number in sockets().items() if name not in before)
        copy = os.dup(lock)  # as a forked process has one until it runs its program
    threading.Timer(0.2, os.close, [copy]).start()
    with held("/dev/none"):
        pass
