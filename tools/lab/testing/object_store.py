"""An object store: a real server of S3's interface, moto's, in a process of its own. It keeps its objects in memory."""

import shutil
from urllib.request import Request, urlopen

from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process

KEYS = {"AWS_ACCESS_KEY_ID": "lander", "AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_EC2_METADATA_DISABLED": "true"}
"""What a process that uses the store has in its environment."""
BUCKET = "lake"
_START_S = 180


class ObjectStoreUnavailable(Exception):
    """There is no server of S3's interface here."""


class ObjectStore:
    """moto's S3 server with a bucket. It keeps its port over restarts, and loses all objects then.

    Raises ObjectStoreUnavailable.
    """

    def __init__(self) -> None:
        program = shutil.which("moto_server")
        if program is None:
            raise ObjectStoreUnavailable("moto_server is not installed (pip install 'moto[server]')")
        self.port = free_port()
        self.process = Process("moto", [program, "-H", "127.0.0.1", "-p", str(self.port)])

    def url(self, prefix: str, port: int | None = None) -> str:
        """Returns the URL of a part of the bucket. port: another one that leads to the store."""
        options = f"endpoint_override=127.0.0.1:{port or self.port}&scheme=http&region=us-east-1"
        return f"s3://{BUCKET}/{prefix}?{options}"

    def start(self) -> None:
        """Returns when the bucket is there. Raises ProcessFailed, OSError."""
        self.process.start()
        self.process.listens(self.port, deadline_s=_START_S)
        made = Request(f"http://127.0.0.1:{self.port}/{BUCKET}", method="PUT")
        urlopen(made, timeout=_START_S).close()
