"""An object store for tests, and what has landed there."""

import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloud.landing.manifest import parse_manifest
from cloud.storage.place import open_storage
from tools.lab.testing.object_store import ObjectStore, ObjectStoreUnavailable


class Server(ObjectStore):
    """moto's S3 server with a bucket. Where there is none, the test is skipped, except in CI."""

    def __init__(self) -> None:
        try:
            super().__init__()
        except ObjectStoreUnavailable as error:
            if "CI" in os.environ:
                raise
            pytest.skip(str(error))

    def landed(self, prefix: str) -> list[dict[str, Any]]:
        """Returns the rows of all complete landing files in the order of their landing."""
        storage = open_storage(self.url(prefix))
        stems = [name.removesuffix(".json") for name in storage.names() if name.endswith(".json")]
        found = sorted(
            (parse_manifest(storage.read(f"{stem}.json"), stem) for stem in stems), key=lambda one: one.number
        )
        tables = [pq.ParquetFile(pa.BufferReader(storage.read(one.file))).read() for one in found]
        return [row for table in tables for row in table.to_pylist()]
