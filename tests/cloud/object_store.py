"""An object store: a real server of S3's interface, in a process of its own."""

import os
import shutil
from typing import Any
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloud.landing.manifest import parse_manifest
from cloud.storage.place import open_storage
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process

KEYS = {"AWS_ACCESS_KEY_ID": "lander", "AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_EC2_METADATA_DISABLED": "true"}


class Server:
    """moto's S3 server with a bucket."""

    def __init__(self) -> None:
        program = shutil.which("moto_server")
        if program is None:
            assert "CI" not in os.environ, "moto_server is not installed"
            pytest.skip("moto_server is not installed")
        self.port = free_port()
        self.process = Process("moto", [program, "-H", "127.0.0.1", "-p", str(self.port)])

    @property
    def options(self) -> str:
        return f"endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"

    def url(self, prefix: str) -> str:
        return f"s3://lake/{prefix}?{self.options}"

    def start(self) -> None:
        self.process.start()
        self.process.listens(self.port, deadline_s=60)
        urlopen(Request(f"http://127.0.0.1:{self.port}/lake", method="PUT"), timeout=60).close()

    def landed(self, prefix: str) -> list[dict[str, Any]]:
        """Returns the rows of all complete landing files in the order of their landing."""
        storage = open_storage(self.url(prefix))
        stems = [name.removesuffix(".json") for name in storage.names() if name.endswith(".json")]
        found = sorted(
            (parse_manifest(storage.read(f"{stem}.json"), stem) for stem in stems), key=lambda one: one.number
        )
        tables = [pq.ParquetFile(pa.BufferReader(storage.read(one.file))).read() for one in found]
        return [row for table in tables for row in table.to_pylist()]
