"""One batch: the files of its plan → judged → taken in by Spark's tasks → the proof → commits → the ledger.

The files are landing files, or data files of `quarantine` whose undecodable messages are decoded again.

A batch may be killed at any point and carried out again. Each commit is skipped where the table has its transaction
already. The batch compares only with rows of earlier batches, so it comes to the same verdicts again. A batch counts
once its intervals are in the ledger, or, when it decodes again, once it is in `batches`; until then its rows can be
deleted.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial

from cloud.job.births import find_births
from cloud.job.judging import collect, find_intervals, find_verdicts
from cloud.job.part import divide
from cloud.job.plan import Plan, SetAside
from cloud.job.proof import Counts, Files, Gained, ProofFailed, count, gain, prove
from cloud.job.take_in import Done, run_parts
from cloud.storage.storage import Storage
from cloud.tables.data_file import DataFile
from cloud.tables.schema import BATCHES, BRONZE_MESSAGES, DATA_TABLES, INGESTED, LANDING_FILES, LEDGER, Table
from cloud.tables.tables import Tables, Transaction
from cloud.transforms.own_decoders import OwnDecoder
from cloud.transforms.rows import decode


class FilesRefused(Exception):
    """Landing files are not what their manifests say. Nothing of the batch was committed."""

    def __init__(self, files: list[SetAside]) -> None:
        super().__init__(", ".join(file for file, _ in files))
        self.files = files


def carry_out(
    plan: Plan, transaction: Transaction, landing: Storage, tables: Tables, own: Sequence[OwnDecoder] = ()
) -> Counts:
    """Takes the plan's files into the tables. `own` are decoders of one's own.

    Raises FilesRefused, ProofFailed and OSError.
    """
    parts = divide(plan, landing, tables)
    found = find_intervals(tables, plan.batch, parts).persist()
    verdicts = None
    files: Files = {table: [] for table in (*DATA_TABLES, LEDGER)}
    try:
        compared = collect(found)
        _raise_refused(compared.refused)
        if compared.brought:
            verdicts = find_verdicts(tables, found, compared.brought, parts)
            verdicts = verdicts.persist() if compared.births else verdicts  # or files would be read once more
        births = find_births(tables, compared.births, parts, verdicts)
        done = run_parts(tables, parts, verdicts, partial(decode, own=own, births=births))
        files |= {table: [file for one in done for file in one.files.get(table.name, [])] for table in DATA_TABLES}
        _raise_refused([SetAside(*refusal) for one in done for refusal in one.refused])
        _raise_failure(done)
        gained = gain(tables, plan.batch, found, files[BRONZE_MESSAGES], len(parts))
        files[LEDGER] = [one.file for one in gained if one.file]
        _raise_failure(gained)
        counts = count(done)
        prove(plan, counts, gained, tables, files)
    except (FilesRefused, OSError, ProofFailed):
        for table, written in files.items():
            _discard(tables, table, written)
        raise
    finally:
        for frame in filter(None, (found, verdicts)):
            frame.unpersist()
    _commit(plan, transaction, tables, counts, files)
    return counts


def _raise_refused(refused: list[SetAside]) -> None:
    if refused:
        raise FilesRefused(refused)


def _raise_failure(done: Iterable[Done | Gained]) -> None:
    if failure := next((one.failure for one in done if one.failure), None):
        raise OSError(failure)


def _discard(tables: Tables, table: Table, files: Iterable[DataFile]) -> None:
    for file in files:
        tables.of(table).remove(file.place)


def _commit(plan: Plan, transaction: Transaction, tables: Tables, counts: Counts, files: Files) -> None:
    for table in DATA_TABLES:
        _append(tables, table, files[table], transaction)
    tables.append_values(BATCHES, [_batch_row(plan, counts, transaction)], transaction)
    _append(tables, LEDGER, files[LEDGER], transaction)
    if plan.files:
        tables.append_values(LANDING_FILES, list(_file_rows(plan)), transaction)


def _append(tables: Tables, table: Table, files: list[DataFile], transaction: Transaction) -> None:
    if tables.has(table, transaction):
        _discard(tables, table, files)  # the run that was interrupted has committed the same rows
    elif files:
        tables.append(table, files, transaction)


def _batch_row(plan: Plan, counts: Counts, transaction: Transaction) -> tuple[object, ...]:
    return (
        plan.batch,
        transaction.checkpoint,
        len(plan.files),
        plan.rows,
        counts.new,
        counts.duplicates,
        counts.quarantined,
        counts.undecodable,
        counts.conflicts,
        counts.readings,
        datetime.fromtimestamp(plan.planned_ms / 1000, UTC),
        datetime.now(UTC),
    )


def _file_rows(plan: Plan) -> Iterable[tuple[object, ...]]:
    now = datetime.now(UTC)
    for file in plan.files:
        yield (
            file.file,
            file.lander,
            file.boot,
            file.number,
            file.rows,
            file.bytes,
            file.sha256,
            INGESTED,
            None,
            plan.batch,
            now,
        )
