"""Route numbers that landed messages have, as intervals, without an object for each message.

A route numbers what it hands on [docs/reference/route-numbers.md]. `links` says which numbers arrived, and `crossings`
which messages they belong to: of a run of messages that follow each other, only the numbers of the first and the last.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloud.landing.intervals import find_runs
from cloud.transforms.rows import write_epochs
from cloud.transforms.verdicts.classify import Numbers


def find_links(rows: pa.Table, batch: int) -> tuple[pa.Table, pa.Table]:
    """Returns the rows of `links` and `crossings` that landed messages bring. `rows` have the column `via`."""
    via = rows["via"].combine_chunks()
    counts = via.value_lengths().to_numpy()
    message = np.repeat(np.arange(len(counts)), counts)
    hop = np.arange(len(message)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
    of_link = via.flatten()
    number = of_link.field("number").to_numpy()
    link, names = _number_links(of_link)
    origins = rows["origin"].combine_chunks().dictionary_encode()
    epochs = rows["epoch"].combine_chunks().dictionary_encode()
    origin, epoch = (column.indices.to_numpy()[message] for column in (origins, epochs))
    seq = rows["seq"].to_numpy()[message]

    order = np.lexsort((number, link))
    follows = (np.diff(link[order]) == 0) & (np.diff(number[order]) <= 1)
    firsts, lasts = (order[ends] for ends in find_runs(follows))
    batches = {name: pa.repeat(pa.scalar(batch, pa.int64()), len(firsts)) for name in ("first_batch", "batch")}
    links = names.take(pa.array(link[firsts])).append_column("lo", pa.array(number[firsts], pa.int64()))
    links = pa.table({**_columns(links), "hi": pa.array(number[lasts], pa.int64()), **batches})

    stream = ((link * (int(hop.max(initial=0)) + 1) + hop) * len(origins.dictionary) + origin) * len(epochs.dictionary)
    stream += epoch
    order = np.lexsort((number, seq, stream))
    gained, further = np.diff(seq[order]), np.diff(number[order])
    follows = (np.diff(stream[order]) == 0) & (((gained == 1) & (further > 0)) | ((gained == 0) & (further == 0)))
    firsts, lasts = (order[ends] for ends in find_runs(follows))
    batches = {name: pa.repeat(pa.scalar(batch, pa.int64()), len(firsts)) for name in ("first_batch", "batch")}
    of_run = _columns(names.take(pa.array(link[firsts])))
    crossings = {
        "origin": origins.dictionary.take(pa.array(origin[firsts])),
        "epoch": write_epochs(epochs.dictionary).take(pa.array(epoch[firsts])),
        "lo": pa.array(seq[firsts], pa.int64()),
        "hi": pa.array(seq[lasts], pa.int64()),
        "gateway": of_run["gateway"],
        "route": of_run["route"],
        "link_epoch": of_run["epoch"],
        "hop": pa.array(hop[firsts], pa.int32()),
        "first_number": pa.array(number[firsts], pa.int64()),
        "last_number": pa.array(number[lasts], pa.int64()),
    }
    return links, pa.table({**crossings, **batches})


def _number_links(of_link: pa.StructArray) -> tuple[Numbers, pa.Table]:
    """Returns a number for each link, the same for the same one, and a table with gateway, route and epoch of each."""
    parts = [of_link.field(name).dictionary_encode() for name in ("gateway", "route", "epoch")]
    code = np.zeros(len(of_link), np.int64)
    for part in parts:
        code = code * len(part.dictionary) + part.indices.to_numpy()
    _, places, link = np.unique(code, return_index=True, return_inverse=True)
    columns = [part.take(pa.array(places)).dictionary_decode() for part in parts]
    return link, pa.table({"gateway": columns[0], "route": columns[1], "epoch": write_epochs(columns[2])})


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def has_links(rows: pa.Table) -> bool:
    """Whether any of the landed messages has a route number."""
    return bool(pc.any(pc.greater(pc.list_value_length(rows["via"]), 0)).as_py())
