"""The stream's checkpoint folder: its id, and the plans that its batches read.

It may be deleted at any time: what it was in the middle of is then taken back from the tables and done again.
"""

import json
import os
import shutil
from pathlib import Path

import msgspec

from cloud.durable_file import sync, write_durably
from cloud.plan import Plan


class Checkpoint:
    """`plans` is the folder that the stream watches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plans = folder / "plans"

    @property
    def id(self) -> str | None:
        """The id that Spark gave the stream when it first ran; None when it has not run yet."""
        try:
            text = (self.folder / "metadata").read_text()
        except FileNotFoundError:
            return None
        stream_id: str = json.loads(text)["id"]
        return stream_id

    def pending(self) -> list[Plan]:
        """Plans of batches that may not be done, in order. Raises msgspec.MsgspecError when one is unreadable."""
        return [read_plan(path.read_bytes()) for path in sorted(self.plans.glob("*.json"))]

    def add(self, plan: Plan) -> None:
        self.plans.mkdir(parents=True, exist_ok=True)
        path = self.plans / f"{plan.batch:012d}.json"
        write_durably(path, msgspec.json.encode(plan))
        # Spark takes the files of a folder in the order of their times, which here is that of the batches.
        os.utime(path, (plan.batch, plan.batch))
        sync(path)

    def forget_plans(self) -> None:
        """Every batch is done."""
        for path in self.plans.glob("*.json"):
            path.unlink()

    def discard(self) -> None:
        """The next stream is a new one with a new id."""
        shutil.rmtree(self.folder, ignore_errors=True)
        sync(self.folder.parent)


def read_plan(content: bytes | str) -> Plan:
    return msgspec.json.decode(content, type=Plan)
