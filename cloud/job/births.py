"""The births of Sparkplug B that explain the messages of a batch: those in earlier batches and in the batch itself."""

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from cloud.job.landed import load_planned, read_landing_file
from cloud.job.part import Part
from cloud.landing.manifest import ManifestError
from cloud.spark.tasks import Batches, map_items
from cloud.storage.place import open_storage
from cloud.storage.storage import Storage, StoreError
from cloud.tables.data_file import read_columns, slices
from cloud.tables.schema import BRONZE_MESSAGES
from cloud.tables.tables import Tables
from cloud.transforms.record import PAYLOAD_MAX
from cloud.transforms.sparkplug import Births, birth_topic

_LANDED = "file STRING, place INT, topic STRING, payload BINARY"


def find_births(tables: Tables, topics: list[str], parts: list[Part], verdicts: DataFrame | None) -> Births | None:
    """Returns the births on these topics, in earlier batches and in new messages of this one; None without topics."""
    if not topics:
        return None
    columns = ["topic", "payload"]
    # A larger payload is not decoded, and takes many times its size when it is parsed.
    wanted = pc.field("topic").isin(topics) & (pc.binary_length(pc.field("payload")) <= PAYLOAD_MAX)
    earlier = tables.rows(BRONZE_MESSAGES, columns, wanted & (pc.field("batch") < parts[0].batch))
    landed = map_items(tables.spark, parts, partial(_read_births, topics, wanted), _LANDED)
    if verdicts is not None:
        landed = landed.join(verdicts, ["file", "place"], "left_anti")
    return Births(
        (topic, payload)
        for rows in (earlier, landed.select(columns).toArrow())
        for topic, payload in zip(rows["topic"].to_pylist(), rows["payload"].to_pylist(), strict=True)
    )


def birth_topics(folder: Storage, file: str) -> set[str]:
    """Returns the topics of the births that messages in a file are about; none if it is no sound file.

    The file has each topic once, in a dictionary.
    """
    try:
        column = read_columns(folder, file, ["topic"], read_dictionary=["topic"])["topic"]
    except StoreError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return set()
    if column.type != pa.dictionary(pa.int32(), pa.string()):
        return set()
    topics = {topic for chunk in column.chunks for topic in chunk.dictionary.to_pylist() if topic is not None}
    return {birth for topic in topics if (birth := birth_topic(topic)) is not None}


def _read_births(topics: list[str], wanted: pc.Expression, part: Part) -> Batches:
    """Yields the wanted messages of a part. The task that takes a file in refuses it if it does not prove."""
    landing = open_storage(part.landing)
    for file in part.files:
        if birth_topics(landing, file.file).isdisjoint(topics):
            continue
        try:
            rows = read_landing_file(load_planned(file, landing), landing).select(["topic", "payload"])
        except ManifestError:
            continue
        rows = rows.add_column(0, "place", pa.array(np.arange(len(rows)), pa.int32()))
        yield from slices(rows.add_column(0, "file", pa.repeat(pa.scalar(file.file), len(rows))).filter(wanted))
