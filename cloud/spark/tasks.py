"""Functions of ours in Spark's tasks. They take and yield Arrow's record batches."""

import gc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import pyarrow as pa

if TYPE_CHECKING:  # a query without Spark opens tables, too
    from pyspark.sql import DataFrame, SparkSession

Batches: TypeAlias = Iterator[pa.RecordBatch]
_Item = TypeVar("_Item")


def map_batches(frame: "DataFrame", task: Callable[[Batches], Batches], schema: str) -> "DataFrame":
    """Returns the rows that a function yields for each partition, as `DataFrame.mapInArrow` does.

    Spark's plan names the function. Spark collects garbage in a Python process after each task, which takes 25 ms with
    all modules that we import. So what a task finds in its process is left out of it.
    """
    run = partial(_run, task)
    setattr(run, "__name__", _name(task))  # noqa: B010
    return frame.mapInArrow(run, schema)


def map_items(
    spark: "SparkSession",
    items: Sequence[_Item],
    work: Callable[[_Item], Batches],
    schema: str,
    tasks: int | None = None,
) -> "DataFrame":
    """Returns the rows that a function yields for each item. Each has a task for itself, unless `tasks` is given."""
    numbers = spark.range(0, len(items), 1, max(1, len(items) if tasks is None else tasks))
    return map_batches(numbers, partial(_run_each, items, work=work), schema)


def _name(task: Callable[..., Batches]) -> str:
    while isinstance(task, partial):
        task = task.keywords.get("work", task.func)
    return task.__name__.lstrip("_")


def _run(task: Callable[[Batches], Batches], batches: Batches) -> Batches:
    gc.freeze()
    return task(batches)


def _run_each(items: Sequence[_Item], batches: Batches, work: Callable[[_Item], Batches]) -> Batches:
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield from work(items[number])
