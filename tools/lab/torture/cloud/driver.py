"""The process that is killed: a Spark driver that does what each line of its input says."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from cloud import has_tables, ingest, maintain, open_session, requarantine, verify
from cloud.tables.delta_log import LOG_FOLDER
from cloud.tables.schema import TABLES
from cloud.tables.tables import Tables
from cloud.upkeep import maintain as upkeep
from tools.cli.paths import cache_directory
from tools.lab.torture.cloud.cut import Cut, Cutter

MONTH_S = 40 * 86_400


class Order(msgspec.Struct):
    """What the driver is to do, and before which operation on files it is cut; `kills`: by SIGKILL."""

    do: str
    cut: int | None = None
    kills: bool = False


class Answer(msgspec.Struct):
    """Whether it was cut, how many operations it did before, and the faults that it found."""

    was_cut: bool
    operations: int
    faults: list[str] = []


class Driver:
    """Does what orders say."""

    def __init__(self, landing: Path, tables: Path, decoder: Path) -> None:
        self._landing, self._tables, self._decoder = landing, tables, decoder
        self._spark: SparkSession = open_session(cache_directory())

    def do(self, what: str) -> list[str]:
        """Returns faults that were found."""
        places = self._spark, self._landing, self._tables
        if what not in ("ingest", "settle") and not has_tables(self._tables):
            return []  # the first run was cut before it made them
        match what:
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
            case "checkpoint":
                self._write_checkpoints()
            case "month":
                self._let_a_month_pass()
        return []

    def _write_checkpoints(self) -> None:
        # What a power cut has left is repaired by the job, which comes first: Spark reads no log that is cut off.
        repaired = Tables(self._spark, self._tables)
        there = [self._tables / table.name for table in TABLES if repaired.exists(table)]
        java: Any = self._spark._jvm
        logs = java.org.apache.spark.sql.delta.DeltaLog
        logs.clearCache()
        for folder in there:
            logs.forTable(self._spark._jsparkSession, str(folder)).checkpoint()
        logs.clearCache()

    def _let_a_month_pass(self) -> None:
        """Delta forgets its old commits, and VACUUM deletes all files that the tables do not hold."""
        self._write_checkpoints()
        for log in self._tables.glob(f"*/{LOG_FOLDER}"):
            newest = max((int(path.name[:20]) for path in log.glob("*.checkpoint.parquet")), default=-1)
            for path in log.glob("[0-9]*.json"):
                if int(path.stem) < newest:
                    path.unlink()
                    path.with_suffix(".crc").unlink(missing_ok=True)
        for path in self._tables.rglob("*.parquet"):
            os.utime(path, (time.time() - MONTH_S,) * 2)
        age, upkeep.VACUUM_S = upkeep.VACUUM_S, 0
        try:
            maintain(self._spark, self._landing, self._tables)
        finally:
            upkeep.VACUUM_S = age


def main() -> None:
    """Reads orders, a JSON object a line, and writes an answer for each."""
    landing, tables, decoder, left = map(Path, sys.argv[1:])
    driver = Driver(landing, tables, decoder)
    cutter = Cutter(tables, left)
    print("ready", flush=True)
    for line in sys.stdin:
        order = msgspec.json.decode(line, type=Order)
        cutter.begin(order.cut, order.kills)
        try:
            answer = Answer(False, 0, driver.do(order.do))
        except Cut:
            answer = Answer(True, 0)
        answer.operations = cutter.operations
        cutter.begin(None, False)
        print(msgspec.json.encode(answer).decode(), flush=True)


if __name__ == "__main__":
    main()
