"""The session of Spark in which a command works on the tables, and the faults with which it may end."""

from collections.abc import Iterator
from contextlib import contextmanager

from cloud import (
    BadDecoder,
    CannotRebuild,
    JobRunning,
    LedgerLost,
    NewerTables,
    NoTables,
    OlderTables,
    ProofFailed,
    SparkMissing,
    open_session,
)
from tools.cli.failure import failing_on
from tools.cli.paths import cache_directory
from tools.cli.tables.folders import parse_settings

UNUSABLE = (SparkMissing, JobRunning, NewerTables, OlderTables, NoTables, BadDecoder, CannotRebuild, OSError)
UNPROVED = (ProofFailed, LedgerLost)


@contextmanager
def session(command: str, master: str, conf: list[str] | None) -> Iterator[None]:
    """Opens Spark's session. Ends the command with 2 where it cannot work, and with 1 where a proof fails."""
    settings = parse_settings(conf)
    with failing_on(*UNUSABLE, command=command), failing_on(*UNPROVED, command=command, exit_code=1):
        open_session(cache_directory(), master=master, settings=settings)
        yield
