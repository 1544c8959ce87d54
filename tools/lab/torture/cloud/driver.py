"""A Spark driver that does what each line of its input says, and is killed.

Java takes ten seconds to start. So each order is carried out by a child of this process, which is killed alone while
Java lives on, or by this process itself: then Java dies with it.
"""

import os
import re
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from cloud import JobRunning, has_tables, ingest, maintain, open_receipts, open_session, requarantine, verify
from cloud.job import lock
from cloud.spark.session import generated_code
from cloud.storage.place import is_url, open_storage
from cloud.tables.schema import TABLES
from cloud.tables.stored_table import LOG_FOLDER
from cloud.tables.tables import Tables
from cloud.upkeep import maintain as upkeep
from tools.cli.paths import cache_directory
from tools.lab.torture.cloud.cutters import AnyCutter, open_cutter

MONTH_S = 40 * 86_400
RECEIPTS = "receipts.json"
"""The file beside the decoder that has the topics and payloads of the receipts that were made last."""
RENEW_S = 0.5
"""So often a job gives a sign in an object store: there are many signs, and some are given when it is overtaken."""


class Order(msgspec.Struct):
    """What the driver is to do, and when it is killed: before the operation `cut` on files or at this request to an
    object store, or after `moment` seconds. It is always killed when it has made `receipts`.

    with_java: whether Java dies too. tables: the tables that get a checkpoint in their log.
    wait_s: the driver begins so much later. silent_s: in an object store, for how long another job has to be silent
        until it is taken for dead. With 0 one that runs is overtaken.
    """

    do: str
    cut: int | None = None
    moment: float | None = None
    with_java: bool = False
    tables: list[str] = []
    wait_s: float = 0
    silent_s: float = 0


class Answer(msgspec.Struct):
    """Whether it was cut, how many operations or requests it did before, and the faults that it found.

    was_refused: whether another job worked on the tables. failure: what the object store did not do.
    """

    was_cut: bool
    operations: int
    faults: list[str] = []
    was_refused: bool = False
    failure: str = ""

    @property
    def is_done(self) -> bool:
        """Whether all that was ordered was done."""
        return not (self.was_cut or self.was_refused or self.failure)


class Driver:
    """Does what orders say."""

    def __init__(self, landing: Path | str, tables: Path | str, decoder: Path) -> None:
        self._landing, self._tables, self._decoder = landing, tables, decoder
        self._receipts = decoder.with_name(RECEIPTS)
        self._spark: SparkSession = open_session(cache_directory())

    def do(self, order: Order) -> list[str]:
        """Returns faults that were found."""
        places = self._spark, self._landing, self._tables
        if order.do not in ("ingest", "settle") and not has_tables(self._tables):
            return []  # the first run was cut before it made them
        match order.do:
            case "ingest":
                ingest(*places)
            case "settle":
                report = ingest(*places)
                return [f"{item.file}: {item.reason}" for item in (*report.set_aside, *report.missing)]
            case "requarantine":
                requarantine(*places, decoders=[self._decoder])
            case "maintain":
                maintain(*places, landing_days=0)
            case "verify":
                return [str(check) for check in verify(*places, fresh_s=1e12) if not check.holds]
            case "receipts":
                with open_receipts(self._tables, self._landing) as receipts:
                    made = [*receipts.of_origins(), receipts.landed()]
                self._receipts.write_bytes(msgspec.json.encode([[topic, text.decode()] for topic, text in made]))
            case "checkpoint":
                self._write_checkpoints(order.tables)
            case "month":
                self._let_a_month_pass(order.tables)
        return []

    def attempt(self, order: Order) -> Answer:
        """Does what the order says, as far as another job and an object store that fails allow."""
        if not is_url(self._tables):
            return Answer(False, 0, self.do(order))
        lock.SILENT_S, lock.RENEW_S = order.silent_s, RENEW_S
        time.sleep(order.wait_s)
        try:
            return Answer(False, 0, self.do(order))
        except JobRunning:
            return Answer(False, 0, was_refused=True)
        except OSError as error:
            return Answer(False, 0, failure=str(error))

    def _write_checkpoints(self, wanted: list[str]) -> None:
        # What a power cut has left is repaired by the job, which comes first: Spark reads no log that is cut off, and
        # no program deletes commits before a checkpoint that it cannot read.
        repaired = Tables(self._spark, self._tables)
        tables = [table for table in TABLES if repaired.exists(table) and table.name in wanted]
        if is_url(self._tables):  # Spark would need jars of its own for it
            for table in tables:
                repaired.stored(table).write_checkpoint()
            return
        there = [Path(self._tables) / table.name for table in tables]
        java: Any = self._spark._jvm
        logs = java.org.apache.spark.sql.delta.DeltaLog
        logs.clearCache()
        with generated_code(self._spark, False):
            for folder in there:
                logs.forTable(self._spark._jsparkSession, str(folder)).checkpoint()
        logs.clearCache()

    def _let_a_month_pass(self, wanted: list[str]) -> None:
        """Delta forgets the commits before checkpoints, and VACUUM deletes all files that the tables do not hold."""
        self._write_checkpoints(wanted)
        tables = open_storage(self._tables)
        for log in (tables.child(f"{table.name}/{LOG_FOLDER}") for table in TABLES):
            names = [entry.name for entry in log.walk()]
            newest = max((int(name[:20]) for name in names if name.endswith(".checkpoint.parquet")), default=-1)
            for name in names:
                if re.fullmatch(r"\d{20}\.(json|crc)", name) and int(name[:20]) < newest:
                    log.remove(name)
        if not is_url(self._tables):
            for path in Path(self._tables).rglob("*.parquet"):
                os.utime(path, (time.time() - MONTH_S,) * 2)
        age, upkeep.VACUUM_S = upkeep.VACUUM_S, 0
        try:
            maintain(self._spark, self._landing, self._tables)
        finally:
            upkeep.VACUUM_S = age


def carry_out(driver: Driver, cutter: AnyCutter, order: Order) -> None:
    """Does what the order says and writes an answer, or dies."""
    cutter.begin(order.cut)
    done = threading.Lock()

    def kill() -> None:
        with done:
            cutter.cut()

    if order.moment is not None:
        killer = threading.Timer(order.moment, kill)
        killer.daemon = True
        killer.start()
    answer = driver.attempt(order)
    if order.do == "receipts":
        kill()
    done.acquire()  # for ever: it is too late to kill
    answer.operations = cutter.spare()
    tell(answer)


def carry_out_in_child(driver: Driver, cutter: AnyCutter, order: Order) -> None:
    """Lets a child carry out the order, and says so where it was killed. Ends this process when the child fails."""
    child = os.fork()
    if child == 0:
        # A thread of its own has a connection of its own to Java: the child shares none with its parent.
        thread = threading.Thread(target=_carry_out_and_exit, args=(driver, cutter, order))
        thread.start()
        thread.join()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGKILL:
        tell(Answer(True, order.cut or 0))
    elif code:
        sys.exit(f"{order.do} ended with {code}")


def _carry_out_and_exit(driver: Driver, cutter: AnyCutter, order: Order) -> None:
    try:
        carry_out(driver, cutter, order)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def tell(answer: Answer) -> None:
    """Writes an answer, a JSON object in a line."""
    print(msgspec.json.encode(answer).decode(), flush=True)


def main() -> None:
    """Reads orders, a JSON object a line, and writes an answer for each."""
    decoder, landing, tables, left = sys.argv[1:]
    driver = Driver(landing, tables, Path(decoder))
    cutter = open_cutter(tables, Path(left))
    print("ready", flush=True)
    for line in sys.stdin:
        order = msgspec.json.decode(line, type=Order)
        carry = carry_out if order.with_java else carry_out_in_child
        carry(driver, cutter, order)


if __name__ == "__main__":
    main()
