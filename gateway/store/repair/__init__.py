"""Work on the files of a store that no gateway has open: repair, backup, restore, a new epoch."""

from gateway.store.repair.command import Report, repair
from gateway.store.repair.copies import backup, begin_epoch, restore
from gateway.store.repair.rebuild import Lost

__all__ = ["Lost", "Report", "backup", "begin_epoch", "repair", "restore"]
