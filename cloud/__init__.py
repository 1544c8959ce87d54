"""From the central broker into tables: the lander, the Spark job, the ledger and the queries.

This is the public face: other folders, notebooks and schedulers import from here alone. `land` takes messages from a
broker into landing files, `ingest` takes landing files into tables. docs/how-to/cloud-library.md has an example of
each.

Importing this package starts no Spark and imports neither pyspark nor pyarrow: each name is loaded when it is first
used. `land` never needs pyspark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloud.job.proof import ProofFailed
    from cloud.job.run import LedgerLost, Report, ingest, requarantine
    from cloud.landing.folder import LanderRunning
    from cloud.landing.lander import LanderReplaced, LandingFailed, land
    from cloud.landing.manifest import Manifest, ManifestError, read_manifest
    from cloud.queries.embedded import OpenTables
    from cloud.queries.result import BadQuery, Result
    from cloud.queries.spark import check_reads_only, open_views, select
    from cloud.queries.views import view_names
    from cloud.receipts.receipts import Receipts, open_receipts
    from cloud.receipts.signing import SigningKey
    from cloud.source.source import register_source
    from cloud.spark.java import SparkMissing
    from cloud.spark.session import open_session
    from cloud.storage.place import check_place
    from cloud.tables.stored_table import JobRunning
    from cloud.tables.tables import NoTables, has_tables
    from cloud.tables.version import NewerTables, OlderTables
    from cloud.transforms.json_values import decode_json
    from cloud.transforms.own_decoders import BadDecoder, decoder, find_decoders
    from cloud.transforms.record import Message, Record, Undecodable
    from cloud.transforms.text_values import decode_csv, decode_value
    from cloud.upkeep.maintain import Upkeep, maintain
    from cloud.upkeep.rebuild import CannotRebuild, rebuild
    from cloud.upkeep.verify import Check, verify

_HOMES = {
    "cloud.landing.folder": ("LanderRunning",),
    "cloud.landing.lander": ("LanderReplaced", "LandingFailed", "land"),
    "cloud.landing.manifest": ("Manifest", "ManifestError", "read_manifest"),
    "cloud.queries.embedded": ("OpenTables",),
    "cloud.queries.result": ("BadQuery", "Result"),
    "cloud.queries.spark": ("check_reads_only", "open_views", "select"),
    "cloud.queries.views": ("view_names",),
    "cloud.receipts.receipts": ("Receipts", "open_receipts"),
    "cloud.receipts.signing": ("SigningKey",),
    "cloud.source.source": ("register_source",),
    "cloud.spark.java": ("SparkMissing",),
    "cloud.spark.session": ("open_session",),
    "cloud.storage.place": ("check_place",),
    "cloud.job.proof": ("ProofFailed",),
    "cloud.tables.stored_table": ("JobRunning",),
    "cloud.job.run": ("LedgerLost", "Report", "ingest", "requarantine"),
    "cloud.tables.version": ("NewerTables", "OlderTables"),
    "cloud.tables.tables": ("NoTables", "has_tables"),
    "cloud.transforms.json_values": ("decode_json",),
    "cloud.transforms.own_decoders": ("BadDecoder", "decoder", "find_decoders"),
    "cloud.transforms.record": ("Message", "Record", "Undecodable"),
    "cloud.transforms.text_values": ("decode_csv", "decode_value"),
    "cloud.upkeep.maintain": ("Upkeep", "maintain"),
    "cloud.upkeep.rebuild": ("CannotRebuild", "rebuild"),
    "cloud.upkeep.verify": ("Check", "verify"),
}

__all__ = [
    "BadDecoder",
    "BadQuery",
    "CannotRebuild",
    "Check",
    "JobRunning",
    "LanderReplaced",
    "LanderRunning",
    "LandingFailed",
    "LedgerLost",
    "Manifest",
    "ManifestError",
    "Message",
    "NewerTables",
    "NoTables",
    "OlderTables",
    "OpenTables",
    "ProofFailed",
    "Receipts",
    "Record",
    "Report",
    "Result",
    "SigningKey",
    "SparkMissing",
    "Undecodable",
    "Upkeep",
    "check_place",
    "check_reads_only",
    "decode_csv",
    "decode_json",
    "decode_value",
    "decoder",
    "find_decoders",
    "has_tables",
    "ingest",
    "land",
    "maintain",
    "open_receipts",
    "open_session",
    "open_views",
    "read_manifest",
    "rebuild",
    "register_source",
    "requarantine",
    "select",
    "verify",
    "view_names",
]


def __getattr__(name: str) -> object:
    """Loads a name of the face from the module that defines it (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
