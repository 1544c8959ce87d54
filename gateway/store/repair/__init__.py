"""Work on the files of a store that no gateway has open: check, repair, backup, restore, migration, a new epoch."""

from gateway.store.database import check_store
from gateway.store.repair.command import Report, repair
from gateway.store.repair.copies import backup, begin_epoch, restore
from gateway.store.repair.migration import Migrated, Move, migrate
from gateway.store.repair.rebuild import Lost
from gateway.store.sqlite.folder import is_taken

__all__ = [
    "Lost",
    "Migrated",
    "Move",
    "Report",
    "backup",
    "begin_epoch",
    "check_store",
    "is_taken",
    "migrate",
    "repair",
    "restore",
]
