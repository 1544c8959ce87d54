"""Many boards by one command: at their ports, several at once; or one after the other, as they are plugged in."""

import glob
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import typer

from host.errors import HostError
from tools.cli.board.errors import BoardError, Refused
from tools.cli.board.progress import Progress
from tools.cli.board.runs.order import Family, Order, carry_out
from tools.cli.board.runs.record import Record
from tools.cli.failure import complain, words_of
from tools.cli.fleet.table import Row

COMMAND = "flash"
PORTS = ("/dev/ttyUSB*", "/dev/ttyACM*", "/dev/cu.usb*", "/dev/cu.SLAB*", "/dev/cu.wch*")
LOOK_AGAIN_S = 0.1
FAULTS = (Refused, BoardError, HostError, OSError)


class _AnotherBoard(Exception):
    """A board that is done already was plugged in."""


@dataclass(frozen=True)
class Ways:
    """How boards are flashed.

    Attributes:
        at_once: how many at the same time.
        wait_s: how long each first reading is awaited.
        patterns: the ports at which a board may appear, as the shell matches files.
    """

    family: Family
    at_once: int
    wait_s: float
    patterns: Sequence[str] = PORTS


class Many:
    """Flashes the boards of a table. A fault of one does not stop the others.

    Attributes:
        faults: why a board is not ready, by its name.
    """

    def __init__(self, boards: Sequence[tuple[Row, Order]], record: Record, ways: Ways) -> None:
        self._boards, self._record, self._ways = boards, record, ways
        self.faults: dict[str, str] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        """Returns when each board was flashed, or has failed."""
        at_ports = [(row, order) for row, order in self._boards if row.port]
        with ThreadPoolExecutor(self._ways.at_once) as pool:
            try:
                list(pool.map(lambda one: self._flash(one[0], one[1].at(one[0].port)), at_ports))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        waiting = [(row, order) for row, order in self._boards if not row.port]
        seen = self._ports()
        for row, order in waiting:
            if self._record.is_ready(row.name):
                typer.echo(f"{row.name}: ready since an earlier run")
                continue
            typer.echo(f"{row.name}: plug in its board")
            while True:
                port, seen = self._next_port(seen)
                typer.echo(f"{row.name}: a board at {port}")
                try:
                    self._flash(row, order.at(port), passes_over=True)
                    break
                except _AnotherBoard as other:
                    typer.echo(f"the board at {port} is {other}, which is ready; plug in that of {row.name}")

    def _flash(self, row: Row, order: Order, passes_over: bool = False) -> None:
        claim = self._claim_of(row.name, order.settings.claim, passes_over)
        progress = Progress(board=row.name)
        try:
            carry_out(
                replace(order, settings=replace(order.settings, claim=claim)),
                self._ways.family,
                progress,
                self._ways.wait_s,
            )
            self._record.finish(row.name)
        except FAULTS as error:
            with self._lock:
                self.faults[row.name] = words_of(error)
                complain(COMMAND, f"{row.name}: {words_of(error)}")
        else:
            progress.say("ready")

    def _claim_of(self, name: str, then: Callable[[str], object], passes_over: bool) -> Callable[[str], None]:
        def claim(number: str) -> None:
            other = self._record.name_of(number)
            if passes_over and other is not None and other != name and self._record.is_ready(other):
                raise _AnotherBoard(other)
            self._record.claim(name, number)
            then(number)

        return claim

    def _next_port(self, seen: set[str]) -> tuple[str, set[str]]:
        """Waits for a port that was not there before."""
        while True:
            now = self._ports()
            if new := sorted(now - seen):
                return new[0], seen & now | {new[0]}
            seen = now
            time.sleep(LOOK_AGAIN_S)

    def _ports(self) -> set[str]:
        return {port for pattern in self._ways.patterns for port in glob.glob(pattern)}
