"""Functions of ours in Spark's tasks. They take and yield Arrow's record batches."""

import gc
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import pyarrow as pa

if TYPE_CHECKING:  # a query without Spark opens tables, too
    from pyspark.sql import DataFrame, SparkSession

Batches: TypeAlias = Iterator[pa.RecordBatch]
_Item = TypeVar("_Item")


class TaskFailed(Exception):
    """A task cannot use a file or an object store. The text is one line. Spark passes on the text alone."""


_REASONS = (
    re.compile(rf"^{re.escape(__name__)}\.{TaskFailed.__name__}: (.+)$", re.MULTILINE),
    re.compile(r"\bjava\.(?:io|nio)\.[\w.]*Exception: (.+)"),  # of Spark's own local folder, for example
)


@contextmanager
def os_errors() -> Iterator[None]:
    """Raises OSError, with the reason as one line, where Spark says that a task could not use files or a store."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = (reason.search(str(error)) for reason in _REASONS)
        if match := next(filter(None, found), None):
            raise OSError(match[1]) from error
        raise


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
    try:
        yield from task(batches)
    except OSError as error:
        raise TaskFailed(" ".join(str(error).split())) from error


def _run_each(items: Sequence[_Item], batches: Batches, work: Callable[[_Item], Batches]) -> Batches:
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield from work(items[number])
