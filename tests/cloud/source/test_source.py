"""`spark.read.format("holdfast")`: each message with its identity, and a stream that reads each file once."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cloud import ingest, register_source
from tests.cloud.messages import BASE_TIME_S, land, row


@pytest.fixture(autouse=True)
def source(spark: SparkSession) -> None:
    register_source(spark)


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """Three landing files of two devices."""
    (tmp_path / "landing").mkdir()
    land(tmp_path / "landing", [row(1), row(2), row(1, "cellar")], [row(3)], [row(2, "cellar")])
    return tmp_path / "landing"


@pytest.fixture
def tables(spark: SparkSession, landing: Path) -> Path:
    ingest(spark, landing, landing.parent / "tables")
    return landing.parent / "tables"


def read(spark: SparkSession, place: Path, **options: str) -> DataFrame:
    return spark.read.format("holdfast").options(**options).load(str(place))


def identities(frame: DataFrame) -> list[tuple[str, int]]:
    return sorted((one.origin, one.seq) for one in frame.select("origin", "seq").collect())


class Stream:
    """A stream over a place into a table in memory. Each `run` is a start of its own, on one checkpoint."""

    def __init__(self, spark: SparkSession, place: Path, checkpoint: Path, **options: str) -> None:
        self._reader = spark.readStream.format("holdfast").options(**options)
        self._place = place
        self._checkpoint = checkpoint

    def run(self) -> list[list[tuple[str, int]]]:
        """Reads what there is now, and returns the identities of each batch."""
        batches: list[list[tuple[str, int]]] = []

        def take(frame: DataFrame, _: int) -> None:
            batches.append(identities(frame))

        frame = self._reader.load(str(self._place))
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(self._checkpoint))
        while True:
            query = writer.trigger(availableNow=True).start()
            try:
                query.awaitTermination()
                return batches
            except PySparkException as error:
                # Spark gives a Python ten seconds to start, which a busy machine may not: a start more changes nothing.
                if "failed to connect back" not in str(error):
                    raise
            finally:
                query.stop()


def test_messages_of_a_landing_folder_have_identity_times_and_payload(spark: SparkSession, landing: Path) -> None:
    rows = read(spark, landing).orderBy("origin", "seq").collect()
    assert [(one.origin, one.epoch, one.seq) for one in rows] == [
        *(("cellar", "0000cafe", seq) for seq in (1, 2)),
        *(("garage", "0000cafe", seq) for seq in (1, 2, 3)),
    ]
    assert bytes(rows[-1].payload) == row(3).payload
    assert rows[-1].file.startswith("lander-1-00000001-") and rows[-1].topic == "telemetry/garage"
    (at,) = read(spark, landing).where("seq = 3").selectExpr("unix_millis(received_at) AS at").collect()
    assert at.at == BASE_TIME_S * 1000 + 3


def test_origin_and_time_leave_other_messages_out(spark: SparkSession, landing: Path, tables: Path) -> None:
    # They landed 7 ms after they were made, and were measured a second apart.
    landed_s, made_s = BASE_TIME_S + 0.009, BASE_TIME_S + 2
    since, until = (datetime.fromtimestamp(landed_s + more, UTC).isoformat() for more in (0, 0.001))
    assert identities(read(spark, landing, origin="garage", since=since)) == [("garage", 2), ("garage", 3)]
    assert identities(read(spark, landing, since=since, until=until)) == [("cellar", 2), ("garage", 2)]
    made = datetime.fromtimestamp(made_s, UTC).isoformat()
    found = read(spark, tables, table="readings", origin="garage", since=made)
    assert identities(found) == 2 * [("garage", 2)] + 2 * [("garage", 3)]


def test_a_condition_of_one_query_is_none_of_the_next(spark: SparkSession, tables: Path) -> None:
    messages = read(spark, tables, table="bronze_messages")
    assert messages.where("seq = 3").count() == 1
    assert messages.count() == 5
    assert identities(messages.where("seq = 3").union(messages.where("origin = 'cellar'"))) == [
        *[("cellar", 1), ("cellar", 2)],
        ("garage", 3),
    ]


def test_files_without_a_wanted_origin_are_not_opened(spark: SparkSession, landing: Path) -> None:
    (landing / "lander-1-00000001-00000002.parquet").write_bytes(b"no landing file")
    assert identities(read(spark, landing, origin="cellar")) == [("cellar", 1), ("cellar", 2)]


def test_file_that_is_not_what_its_manifest_says_ends_the_query_by_name(spark: SparkSession, landing: Path) -> None:
    (landing / "lander-1-00000001-00000002.parquet").write_bytes(b"no landing file")
    with pytest.raises(PySparkException, match=r"lander-1-00000001-00000002\.parquet: the file has 15 bytes"):
        read(spark, landing).collect()


def test_tables_are_read_without_delta(spark: SparkSession, tables: Path) -> None:
    readings = read(spark, tables, table="readings")
    assert readings.count() == 10
    assert identities(readings.where("metric = 'load' AND device = 'cellar'")) == [("cellar", 1), ("cellar", 2)]
    assert readings.where("event_time < TIMESTAMP '2001-01-01 00:00:00Z'").count() == 0
    (day,) = readings.select("ingest_date").distinct().collect()
    assert day.ingest_date == datetime.now(UTC).date()
    delta = spark.read.format("delta").load(str(tables / "bronze_messages"))
    assert read(spark, tables, table="bronze_messages").exceptAll(delta).isEmpty()


def test_a_query_reads_the_columns_that_its_schema_names(spark: SparkSession, tables: Path) -> None:
    narrow = spark.read.format("holdfast").schema("seq BIGINT, origin STRING").option("table", "bronze_messages")
    assert narrow.load(str(tables)).columns == ["seq", "origin"]
    assert identities(narrow.load(str(tables)))[0] == ("cellar", 1)
    with pytest.raises(PySparkException, match="column seq is bigint here, the query's schema says string"):
        spark.read.format("holdfast").schema("seq STRING").option("table", "readings").load(str(tables)).collect()


def test_stream_reads_each_landing_file_once_over_restarts(spark: SparkSession, landing: Path, tmp_path: Path) -> None:
    stream = Stream(spark, landing, tmp_path / "checkpoint")
    (first,) = stream.run()
    assert first == [("cellar", 1), ("cellar", 2), ("garage", 1), ("garage", 2), ("garage", 3)]
    assert stream.run() == []
    land(landing, [row(4)], boot=2)
    land(landing, [row(5)], lander="lander-2")
    assert stream.run() == [[("garage", 4), ("garage", 5)]]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"table": "reading"}, "there is no table 'reading'; the tables are bronze_messages, readings"),
        ({"since": "noon"}, "since is a time as 2026-06-01 or 2026-06-01T12:30:00Z, not 'noon'"),
        ({"table": "checks", "origin": "garage"}, "the option origin is of no use here"),
        ({"maxFilesPerTrigger": "none"}, "maxFilesPerTrigger is a number of files above 0, not 'none'"),
    ],
)
def test_option_that_cannot_be_is_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(PySparkException, match=reason):
        spark.read.format("holdfast").options(**options).load(str(tmp_path)).collect()


def test_folder_without_landing_files_or_tables_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=r"the landing folder .*nowhere does not exist"):
        read(spark, tmp_path / "nowhere").collect()
    with pytest.raises(PySparkException, match=r"there are no tables in .*nowhere"):
        read(spark, tmp_path / "nowhere", table="readings").collect()
