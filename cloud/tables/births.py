"""The births of Sparkplug B that explain the messages of a batch: those in earlier batches and in the batch itself."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from cloud.transforms.sparkplug import Births, birth_topic


def find_births(files: Iterable[Path], new: DataFrame, bronze: DataFrame) -> Births | None:
    """Returns the births of all nodes and devices that messages in the files are about; None without such messages.

    files: the landing files of the batch.
    new: its messages with new identities.
    bronze: the messages of earlier batches.
    """
    wanted = {birth for topic in _topics(files) if (birth := birth_topic(topic)) is not None}
    if not wanted:
        return None
    topics = sf.broadcast(bronze.sparkSession.createDataFrame([(topic,) for topic in sorted(wanted)], "topic STRING"))
    known = bronze.select("topic", "payload").union(new.select("topic", "payload"))
    return Births((row.topic, bytes(row.payload)) for row in known.join(topics, "topic", "left_semi").collect())


def _topics(files: Iterable[Path]) -> set[str]:
    """Returns the topics in the files. The files have each topic once, in a dictionary."""
    found: set[str] = set()
    for file in files:
        column = pq.read_table(file, columns=["topic"], read_dictionary=["topic"])["topic"]
        found.update(topic for chunk in column.chunks for topic in chunk.dictionary.to_pylist())
    return found
