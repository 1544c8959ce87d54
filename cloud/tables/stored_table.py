"""A Delta table: what it holds, and commits that are durable before they count.

delta-rs reads and writes the log of the table. It syncs nothing to a local disk: here each commit is synced before the
next step. Until then a power cut may leave the last commit cut off. The first line of a commit says what the commit
does, so a job that opens the table finds such a commit, and removes it: nothing has counted on it.

In an object store, each commit of a job has the job's generation as a transaction of the application FENCE. delta-rs
refuses a commit when another one with a transaction of the same application came in between, so a job that was
overtaken commits nothing more.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Metadata, PostCommitHookProperties, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from cloud.storage.durable_file import sync
from cloud.storage.local import LocalStorage
from cloud.storage.storage import Storage, StoreError
from cloud.tables.data_file import DataFile, now_ms
from cloud.tables.schema import Table

LOG_FOLDER = "_delta_log"
FENCE = "holdfast-job"
"""The application whose transactions are the generations of jobs that have taken over from another."""
_LAST_CHECKPOINT = "_last_checkpoint"
_CHECKPOINT_COMMITS = 50
_COMMIT_NAME = re.compile(r"\d{20}\.json")
_TOLD = "holdfast"
"""The field of a commit's first line that says what the commit does."""
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
        self._table: DeltaTable | None = self._open()
        self._refuse_overtaken()

    @property
    def version(self) -> int:
        return self._table.version() if self._table else -1

    @property
    def files(self) -> Mapping[str, DataFile]:
        """The files that hold the table's rows, by their places."""
        if self._table and self._files_version != self._table.version():
            actions = pa.table(self._table.get_add_actions()).sort_by(_OLDEST_FIRST)
            places = actions["path"].to_pylist()
            unknown = [place not in self._files for place in places]
            known = self._files | {
                file.place: file for file in _data_files(actions.filter(pa.array(unknown, pa.bool_())))
            }
            self._files = {place: known[place] for place in places}
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
        """Returns the version of an application's last transaction; -1 without one."""
        found = self._table.transaction_version(application) if self._table else None
        return -1 if found is None else found

    def refresh(self) -> None:
        """Reads what was committed since the last look. Raises OSError, JobRunning."""
        if self._table is None:
            self._table = self._open()
        else:
            with _telling(self.folder):
                self._table.update_incremental()
        self._refuse_overtaken()

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
                configuration=table.properties,
                storage_options=self.folder.delta_options,
                post_commithook_properties=_NO_HOOKS,
                raise_if_key_not_exists=False,  # it knows no constraints here, and the version is our own
            )
        self._sync(0, 0)
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
        told = {"adds": [file.place for file in added], "removes": [file.place for file in removed]}
        properties = CommitProperties(
            custom_metadata={_TOLD: {**told, "transactions": transactions}},
            app_transactions=[Transaction(*one) for one in transactions.items()],
        )
        actions: list[AddAction | RemoveAction] = [_add(file, data_change) for file in added]
        actions += [_remove(file, data_change) for file in removed]
        before = self.version
        while not self._try(actions, properties):
            self.refresh()
            if gone := [file.place for file in removed if file.place not in self.files]:
                raise StoreError(f"{self.folder}: another program has removed {gone[0]} meanwhile; run this again")
        self._catch_up(before)

    def _catch_up(self, before: int) -> None:
        """Reads and syncs the commits behind `before`. Sums up the log now and then. Raises OSError."""
        self.refresh()
        self._sync(before + 1, self.version)
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

    def write_checkpoint(self) -> None:
        """Sums up the log in a file, and deletes what is older than the table's retention time. Raises OSError."""
        with _telling(self.folder):
            self._opened.create_checkpoint()
            if isinstance(self._log, LocalStorage):
                for name in (f"{self.version:020}.checkpoint.parquet", _LAST_CHECKPOINT):
                    sync(self._log.place / name)
                sync(self._log.place)
            self._opened.cleanup_metadata()

    def vacuum(self, age_s: float) -> int:
        """Deletes the files that no version of the table has needed for so long. Returns how many. Raises OSError."""
        options: dict[str, Any] = {
            "retention_hours": int(age_s // 3600),
            "enforce_retention_duration": False,
            "full": True,
        }
        before = self.version
        with _telling(self.folder):
            found = self._opened.vacuum(dry_run=True, **options)
            if found:
                self._opened.vacuum(dry_run=False, post_commithook_properties=_NO_HOOKS, **options)
        self._catch_up(before)
        return len(found)

    @property
    def _opened(self) -> DeltaTable:
        if self._table is None:
            raise FileNotFoundError(f"there is no table in {self.folder}")
        return self._table

    def _refuse_overtaken(self) -> None:
        if self._generation is not None and (overtaker := self.transaction(FENCE)) > self._generation:
            raise JobRunning(f"job {overtaker} has taken over the tables from this one, which was silent for too long")

    def _sync(self, first: int, last: int) -> None:
        """Has commits on the disk, and their names."""
        if not isinstance(self._log, LocalStorage):
            return
        for version in range(first, last + 1):
            sync(self._log.place / _commit_name(version))
        sync(self._log.place)
        if first == 0:
            for folder in (self._log.place.parent, self._log.place.parent.parent):
                sync(folder)

    # After a power cut

    def _open(self) -> DeltaTable | None:
        """Opens the table as it is without what a power cut has cut off. Raises OSError."""
        log = self._log if isinstance(self._log, LocalStorage) and self._log.is_there() else None
        if log and not self._read_only:
            _remove_cut_checkpoints(log)
        try:
            with _telling(self.folder):
                table = self._load()
        except StoreError as error:
            if log and self._read_only and _cut_checkpoints(log):
                raise StoreError(f"{error}; a run of `holdfast cloud ingest` mends what a power cut has left") from None
            last = _last_commit(log) if log else -1
            if log is None or last < 0 or _ends_with_json(log.read(_commit_name(last))):
                raise
            return self._without_last(last, log)
        if table and log and not _is_whole(table, log):
            return self._without_last(table.version(), log)
        return table

    def _load(self, version: int | None = None) -> DeltaTable | None:
        try:
            return DeltaTable(self.folder.uri, version=version, storage_options=self.folder.delta_options)
        except TableNotFoundError:
            return None

    def _without_last(self, last: int, log: LocalStorage) -> DeltaTable | None:
        """Returns the table before its last commit, and removes that unless `read_only`."""
        if not self._read_only:
            log.remove(_commit_name(last))
            sync(log.place)
        with _telling(self.folder):
            return self._load(last - 1) if last else None


def _last_commit(log: LocalStorage) -> int:
    """Returns the version of the last commit in a log; -1 without one."""
    return max((int(name[:20]) for name in log.names() if _COMMIT_NAME.fullmatch(name)), default=-1)


def _ends_with_json(commit: bytes) -> bool:
    """Whether the last line of a commit is whole. Else a power cut has cut it off."""
    try:
        msgspec.json.decode(commit.rstrip().rpartition(b"\n")[2])
    except msgspec.DecodeError:
        return False
    return True


def _is_whole(table: DeltaTable, log: LocalStorage) -> bool:
    """Whether the last commit has all that its first line says. Commits of other programs are taken to be whole."""
    name = _commit_name(table.version())
    if log.has(name) and not log.size(name):
        return False
    (last, *_) = table.history(1) or [{}]
    told = last.get(_TOLD)
    if not isinstance(told, dict):
        return True
    files = set(pa.table(table.get_add_actions())["path"].to_pylist())
    return (
        files.issuperset(told["adds"])
        and files.isdisjoint(told["removes"])
        and all((table.transaction_version(one) or 0) >= number for one, number in told["transactions"].items())
    )


def _remove_cut_checkpoints(log: LocalStorage) -> None:
    """Removes checkpoints that cannot be read, where the log goes on without, and what names the last one."""
    cut = _cut_checkpoints(log)
    if log.has(_commit_name(0)) or any(name not in cut for name in _checkpoints(log)):
        for name in [*cut, _LAST_CHECKPOINT] if cut else []:
            log.remove(name)
            sync(log.place)


def _cut_checkpoints(log: LocalStorage) -> list[str]:
    return [name for name in _checkpoints(log) if not _is_parquet(log.path(name))]


def _checkpoints(log: LocalStorage) -> list[str]:
    return [name for name in log.names() if ".checkpoint." in name]


def _is_parquet(path: str) -> bool:
    try:
        pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False
    return True


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
    return AddAction(file.place, file.size, file.partition, file.modified_ms, data_change, file.stats or "{}")


def _remove(file: DataFile, data_change: bool) -> RemoveAction:
    return RemoveAction(file.place, data_change, now_ms(), file.size, dict(file.partition))


def _commit_name(version: int) -> str:
    return f"{version:020}.json"


@contextmanager
def _telling(folder: Storage) -> Iterator[None]:
    """Turns errors of delta-rs into StoreError, in one line."""
    try:
        yield
    except DeltaError as error:
        raise StoreError(f"{folder}: {str(error).strip().splitlines()[0]}") from None
