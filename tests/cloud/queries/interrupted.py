"""Asks the tables in a folder a query without an end again and again, and ends it by Ctrl-C: `python -m ... FOLDER`.

Each time Ctrl-C comes at a later line of the query's beginning, twice if the query does not end at once, and the last
time while the query runs. It prints how often it asked, or ends with an exception if a query does not end.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from cloud import OpenTables
from cloud.queries import embedded

RUNS_S = 0.5  # after so long a query runs
ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range < b.range"


def main(folder: str) -> int:
    with OpenTables(folder) as opened:
        number = 0
        while True:
            number += 1
            lines: list[int] = []
            try:
                with ctrl_c(number, lines):
                    opened.select(ENDLESS)
            except KeyboardInterrupt:
                assert opened.select("SELECT 1").rows == [(1,)]
            if len(lines) < number:
                return number


@contextmanager
def ctrl_c(number: int, lines: list[int]) -> Iterator[None]:
    """Ctrl-C comes before this thread carries out a line of `embedded`, by its number, or while the query runs.

    `lines` gets the lines that this thread came to before.
    """
    came = threading.Event()

    def strike() -> None:
        came.set()
        os.kill(os.getpid(), signal.SIGINT)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if came.is_set() or frame.f_code.co_filename != embedded.__file__:
            return None
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == number:
                strike()
        return trace

    timer = threading.Timer(RUNS_S, strike)
    timer.start()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)
        timer.cancel()
        timer.join()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    print(main(sys.argv[1]))
