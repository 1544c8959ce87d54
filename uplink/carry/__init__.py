"""A route's backlog in a file, which is carried to another gateway: `export_backlog` writes it, `Imports` reads it."""

from uplink.carry.backlog_file import BadBacklogFile
from uplink.carry.export import ExportFailed, export_backlog
from uplink.carry.imports import Imports, ImportStopped

__all__ = ["BadBacklogFile", "ExportFailed", "ImportStopped", "Imports", "export_backlog"]
