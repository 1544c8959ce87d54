"""A Delta table: what it holds, and commits that are durable before they count.

delta-rs reads and writes the log of the table. It syncs nothing to a local disk: here each commit is synced before the
next step, also one that a killed job has left. Until then a power cut may leave the last commit cut off. The first line
of a commit promises what the commit has, so a job that opens the table finds such a commit, and removes it.

In an object store, each commit of a job has the job's generation as a transaction of the application FENCE. delta-rs
refuses a commit when another one with a transaction of the same application came in between, so a job that was
overtaken commits nothing more.
"""

import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Metadata, PostCommitHookProperties, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from cloud.storage.durable_file import sync
from cloud.storage.local import LocalStorage
from cloud.storage.storage import Storage, StoreError
from cloud.tables.data_file import DataFile, now_ms
from cloud.tables.log_files import LAST_CHECKPOINT, LogFiles, commit_name
from cloud.tables.schema import Table

LOG_FOLDER = "_delta_log"
FENCE = "holdfast-job"
"""The application whose transactions are the generations of jobs that have taken over from another."""
_CHECKPOINT_COMMITS = 50
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_PROMISED = "holdfast"
"""The field of a commit's first line that promises what the commit has."""
_OLDEST_FIRST = [("modification_time", "ascending"), ("path", "ascending")]
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class JobRunning(Exception):
    """Another job is working on these tables."""


class StoredTable:
    """A table in a folder, as far as it was read. `version` is the last commit's; -1 where there is no table."""

    def __init__(self, folder: Storage, *, read_only: bool = False, generation: int | None = None) -> None:
        """Reads the log. Raises OSError, and JobRunning as `commit` does.

        read_only: what a power cut has cut off stays, and is as if it had never been.
        generation: the job's generation, in an object store.
        """
        self.folder = folder
        self._log = folder.child(LOG_FOLDER)
        self._read_only = read_only
        self._generation = generation
        self._files: dict[str, DataFile] = {}
        self._files_version = -1
        self._transactions: dict[str, int] = {}
        self._transactions_of = -1
        self._table: DeltaTable | None = self._open()
        self._refuse_overtaken()

    @property
    def version(self) -> int:
        return self._table.version() if self._table else -1

    @property
    def files(self) -> Mapping[str, DataFile]:
        """The files that hold the table's rows, by their places. Raises OSError."""
        if self._table and self._files_version != self._table.version():
            with _telling(self.folder):
                actions = pa.table(self._table.get_add_actions()).sort_by(_OLDEST_FIRST)
            paths = actions["path"].to_pylist()
            known = {file.path: file for file in self._files.values()}
            unknown = actions.filter(pa.array([path not in known for path in paths], pa.bool_()))
            known |= {file.path: file for file in _data_files(unknown)}
            self._files = {known[path].place: known[path] for path in paths}
            self._files_version = self._table.version()
        return self._files

    @property
    def schema(self) -> str:
        """The columns, in JSON as Delta describes them."""
        return self._opened.schema().to_json()

    @property
    def metadata(self) -> Metadata:
        return self._opened.metadata()

    @property
    def reader_version(self) -> int:
        """The version of Delta's protocol that a reader needs; 1 where there is no table."""
        return self._table.protocol().min_reader_version if self._table else 1

    def transaction(self, application: str) -> int:
        """Returns the version of an application's last transaction; -1 without one. Raises OSError."""
        if self._transactions_of != self.version:
            self._transactions, self._transactions_of = {}, self.version
        if application not in self._transactions:  # delta-rs reads the log for each answer
            with _telling(self.folder):
                found = self._table.transaction_version(application) if self._table else None
            self._transactions[application] = -1 if found is None else found
        return self._transactions[application]

    def refresh(self) -> None:
        """Reads what was committed since the last look. Raises OSError, JobRunning."""
        self._read()
        self._refuse_overtaken()

    def _read(self) -> None:
        if self._table is None:
            self._table = self._open()
            return
        before = self.version
        with _telling(self.folder):
            self._table.update_incremental()
        self._sync(range(before + 1, self.version + 1))

    def create(self, table: Table) -> None:
        """Makes the table, without a row. Raises OSError."""
        with _telling(self.folder):
            DeltaTable.create(
                self.folder.uri,
                DeltaSchema.from_json(table.delta_schema),
                mode="error",
                partition_by=[table.partition] if table.partition else None,
                name=table.name,
                description=table.comment,
                configuration={"delta.minWriterVersion": "4", **table.properties},
                storage_options=self.folder.delta_options,
                post_commithook_properties=_NO_HOOKS,
                raise_if_key_not_exists=False,  # it knows no constraints here, and the version is our own
            )
        self.refresh()
        if self._generation is not None:
            self.commit()

    def commit(
        self,
        added: Collection[DataFile] = (),
        removed: Collection[DataFile] = (),
        transaction: tuple[str, int] | None = None,
        *,
        data_change: bool = True,
    ) -> None:
        """Adds and removes files in one commit, which is durable when this returns.

        transaction: an application and the version by which it recognises this commit.
        data_change: False if the added files have the rows of the removed ones.

        If another program commits at the same time, this commit follows. Raises OSError, also if that program has
        removed one of the files; and JobRunning if it was a later job, which has taken over.
        """
        transactions = dict([transaction] if transaction else [])
        if self._generation is not None:
            transactions[FENCE] = self._generation
        name = uuid.uuid4().hex
        promised = {"adds": [file.path for file in added], "removes": [file.path for file in removed]}
        properties = CommitProperties(
            custom_metadata={_PROMISED: {"id": name, **promised, "transactions": transactions}},
            app_transactions=[Transaction(*one) for one in transactions.items()],
        )
        actions: list[AddAction | RemoveAction] = [_add(file, data_change) for file in added]
        actions += [_remove(file, data_change) for file in removed]
        before = self.version
        while not (self._try(actions, properties) or self._has_committed(name, before)):
            if gone := [file.place for file in removed if file.place not in self.files]:
                raise StoreError(f"{self.folder}: another program has removed {gone[0]} meanwhile; run this again")
        self._read()
        if self.version == before + 1 and self._transactions_of == before:
            self._transactions, self._transactions_of = self._transactions | transactions, self.version
        if self.version // _CHECKPOINT_COMMITS > before // _CHECKPOINT_COMMITS:
            self.write_checkpoint()

    def _try(self, actions: list[AddAction | RemoveAction], properties: CommitProperties) -> bool:
        """Commits. Returns whether no other commit is in the way. Raises OSError."""
        before = self.version
        with _telling(self.folder):
            try:
                self._opened.create_write_transaction(
                    actions,
                    "append",
                    self._opened.schema(),
                    partition_by=self.metadata.partition_columns,
                    commit_properties=properties,
                    post_commithook_properties=_NO_HOOKS,
                )
            except CommitFailedError:
                if DeltaTable(self.folder.uri, storage_options=self.folder.delta_options).version() == before:
                    raise
                return False
        return True

    def _has_committed(self, name: str, before: int) -> bool:
        """Whether this commit is in the log: an object store may have made it, and its answer was lost."""
        self.refresh()
        with _telling(self.folder):
            since = self._opened.history(self.version - before)
        return any(_promise_of(one).get("id") == name for one in since)

    def write_checkpoint(self) -> None:
        """Sums up the log in a file, and deletes what is older than the table's retention time. Raises OSError."""
        with _telling(self.folder):
            self._opened.create_checkpoint()
            if isinstance(self._log, LocalStorage):
                for name in (f"{self.version:020}.checkpoint.parquet", LAST_CHECKPOINT):
                    sync(self._log.place / name)
                sync(self._log.place)
            self._opened.cleanup_metadata()

    def unneeded(self, age_s: float) -> list[str]:
        """Returns the data files that no version of the table has needed for so long. Raises OSError."""
        with _telling(self.folder):
            found = self._opened.vacuum(int(age_s // 3600), enforce_retention_duration=False, full=True)
        return [unquote(path) for path in found if path.endswith(".parquet")]

    def removed(self) -> set[str]:
        """Returns the data files that earlier versions of the table have, as far as the log names them."""
        with _telling(self.folder):
            found = self._opened.vacuum(0, enforce_retention_duration=False)
        return {unquote(path) for path in found}

    @property
    def _opened(self) -> DeltaTable:
        if self._table is None:
            raise FileNotFoundError(f"there is no table in {self.folder}")
        return self._table

    def _refuse_overtaken(self) -> None:
        if self._generation is not None and (overtaker := self.transaction(FENCE)) > self._generation:
            raise JobRunning(f"job {overtaker} has taken over the tables from this one, which was silent for too long")

    def _sync(self, versions: Iterable[int]) -> None:
        """Syncs commits and the folder of the log, before anything counts on them. Only a job needs that."""
        if self._read_only or not isinstance(self._log, LocalStorage):
            return
        for version in versions:
            sync(self._log.place / commit_name(version))
            if version == 0:
                for folder in (self._log.place.parent, self._log.place.parent.parent):
                    sync(folder)
            sync(self._log.place)

    # After a kill or a power cut

    def _open(self) -> DeltaTable | None:
        """Opens the table, without a commit that a power cut has cut off. Raises OSError.

        A job that was killed may have left commits that are not synced: they are synced here.
        """
        if not isinstance(self._log, LocalStorage) or not self._log.is_there():
            return self._load()
        log = LogFiles(self._log)
        try:
            table = self._load()
        except StoreError as error:
            if self._read_only:
                if (cut := log.first_cut()) is None:
                    mends = "a run of `holdfast cloud ingest` mends what a power cut has left"
                    raise StoreError(f"{error}; {mends}") from None
                return self._load_before(cut)
            log.mend()
            table = self._load()
        if table and not _is_whole(table, log):
            if self._read_only:
                return self._load_before(table.version())
            log.remove_commit(table.version())
            return self._open()
        if table:
            self._sync(log.commits_behind_checkpoint())
        return table

    def _load_before(self, version: int) -> DeltaTable | None:
        """Returns the table before a version; None where there was none. Raises OSError."""
        return self._load(version - 1) if version else None

    def _load(self, version: int | None = None) -> DeltaTable | None:
        with _telling(self.folder):
            try:
                return DeltaTable(self.folder.uri, version=version, storage_options=self.folder.delta_options)
            except TableNotFoundError:
                return None


def _is_whole(table: DeltaTable, log: LogFiles) -> bool:
    """Whether the last commit has all that its first line promises. Commits of other programs are taken to be whole,
    unless they are empty."""
    if log.has_empty_commit(table.version()):
        return False
    (made, *_) = table.history(1) or [{}]
    promise = _promise_of(made)
    files = set(pa.table(table.get_add_actions())["path"].to_pylist())
    return (
        files.issuperset(promise.get("adds", ()))
        and files.isdisjoint(promise.get("removes", ()))
        and all(
            (table.transaction_version(one) or 0) >= number for one, number in promise.get("transactions", {}).items()
        )
    )


def _promise_of(commit: dict[str, Any]) -> dict[str, Any]:
    """Returns what the first line of a commit promises; nothing for one of another program."""
    promise = commit.get(_PROMISED)
    return promise if isinstance(promise, dict) else {}


def _data_files(actions: pa.Table) -> Iterator[DataFile]:
    """Yields the files that delta-rs describes."""
    for action in actions.to_pylist():
        stats = {
            "numRecords": action.get("num_records"),
            "minValues": _with_value(action.get("min")),
            "maxValues": _with_value(action.get("max")),
            "nullCount": _with_value(action.get("null_count")),
        }
        yield DataFile(
            action["path"],
            {name: None if value is None else str(value) for name, value in (action.get("partition") or {}).items()},
            action["size_bytes"],
            action["modification_time"],
            None if action.get("num_records") is None else msgspec.json.encode(stats).decode(),
        )


def _with_value(values: dict[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (values or {}).items() if value is not None}


def _add(file: DataFile, data_change: bool) -> AddAction:
    return AddAction(file.path, file.size, file.partition, file.modified_ms, data_change, file.stats or "{}")


def _remove(file: DataFile, data_change: bool) -> RemoveAction:
    return RemoveAction(file.path, data_change, now_ms(), file.size, dict(file.partition))


@contextmanager
def _telling(folder: Storage) -> Iterator[None]:
    """Turns errors of delta-rs into StoreError, in one line."""
    try:
        yield
    except (DeltaError, OSError) as error:
        # It breaks a text at each colon, and the reason comes last.
        lines = [line.strip(" \u21b3") for line in _COLOUR.sub("", str(error)).splitlines()]
        raise StoreError(f"{folder}: {': '.join(filter(None, lines)) or type(error).__name__}") from None
