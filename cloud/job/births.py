"""The births of Sparkplug B that explain the messages of a batch: those in earlier batches and in the batch itself."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloud.job.landed import read_landing_file
from cloud.job.part import Verdicts
from cloud.job.plan import Plan
from cloud.landing.manifest import Manifest, ManifestError
from cloud.storage.storage import Storage, StoreError
from cloud.tables.data_file import read_columns
from cloud.tables.schema import BRONZE_MESSAGES, QUARANTINE
from cloud.tables.tables import Tables
from cloud.transforms.record import PAYLOAD_MAX
from cloud.transforms.sparkplug import Births, birth_topic


def find_births(
    plan: Plan, manifests: list[Manifest], landing: Storage, tables: Tables, verdicts: Verdicts
) -> Births | None:
    """Returns the births of all nodes and devices that the plan's messages are about; None without such messages.

    A file that is not what its manifest says has no births here. The task that takes it in refuses it.
    """
    topics = {described.file: _topics(landing, described.file) for described in manifests}
    every = set().union(*topics.values(), *(_topics(tables.of(QUARANTINE), one.file) for one in plan.again))
    births = {birth for topic in every if (birth := birth_topic(topic)) is not None}
    if not births:
        return None
    wanted = pa.array(sorted(births), pa.string())
    # A larger payload is not decoded, and takes many times its size when it is parsed.
    small = pc.binary_length(pc.field("payload")) <= PAYLOAD_MAX
    condition = pc.field("topic").isin(wanted) & (pc.field("batch") < plan.batch) & small
    found = [tables.rows(BRONZE_MESSAGES, ["topic", "payload"], condition)]
    with_births = (one for one in manifests if births & topics[one.file])
    found += _new_rows(with_births, landing, verdicts, wanted)
    return Births(
        (topic, payload)
        for rows in found
        for topic, payload in zip(rows["topic"].to_pylist(), rows["payload"].to_pylist(), strict=True)
    )


def _topics(folder: Storage, file: str) -> set[str]:
    """Returns the topics in a file, which has each once, in a dictionary; none if it is no sound file."""
    try:
        column = read_columns(folder, file, ["topic"], read_dictionary=["topic"])["topic"]
    except StoreError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return set()
    if column.type != pa.dictionary(pa.int32(), pa.string()):
        return set()
    return {topic for chunk in column.chunks for topic in chunk.dictionary.to_pylist() if topic is not None}


def _new_rows(
    manifests: Iterable[Manifest], landing: Storage, verdicts: Verdicts, topics: pa.Array
) -> Iterator[pa.Table]:
    """Yields topic and payload of the messages with new identities and these topics, of each sound file."""
    for described in manifests:
        try:
            rows = read_landing_file(described, landing).select(["topic", "payload"])
        except ManifestError:
            continue
        is_new = np.ones(rows.num_rows, bool)
        if described.file in verdicts:
            places, _ = verdicts[described.file]
            is_new[places] = False
        yield rows.filter(pc.and_(pc.is_in(rows["topic"], value_set=topics), pa.array(is_new)))
