"""Work on the files of a store that no gateway has open: repair, backup, restore, migration, a new epoch."""

from gateway.store.repair.command import Report, repair
from gateway.store.repair.copies import backup, begin_epoch, restore
from gateway.store.repair.migration import Migrated, Move, migrate
from gateway.store.repair.rebuild import Lost

__all__ = ["Lost", "Migrated", "Move", "Report", "backup", "begin_epoch", "migrate", "repair", "restore"]
