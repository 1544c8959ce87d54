"""What a process needs that starts, takes in all messages, and ends; and the size of what landed."""

import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from tools.lab.bench.cloud.landing import Fleet
from tools.lab.bench.cloud.usage import Usage
from tools.lab.figure import Figure
from tools.lab.testing.process import ProcessFailed

MESSAGES_A_CPU_SECOND = 80_000
RATE_FROM = 1_000_000
"""With fewer messages the start of Spark takes more processor time than they, and the rate has no goal."""
PEAK_BYTES = 2_000_000_000
LANDING_BYTES = 16
FLAT = 1.2


class Cold(NamedTuple):
    """What one process used for `messages` messages; `landed` is the size of the landing files with their manifests."""

    messages: int
    landed: int
    cpu_s: float
    peak_bytes: int

    def peak(self) -> Figure:
        name = f"peak memory of all processes, {self.messages:,} messages"
        return Figure(name, "B", self.peak_bytes, None, PEAK_BYTES, at_most=True)

    def figures(self) -> list[Figure]:
        name = "messages a CPU second, cold start, with readings"
        size = self.landed / self.messages
        goal = MESSAGES_A_CPU_SECOND if self.messages >= RATE_FROM else None
        return [
            Figure(name, "1/s", self.messages / self.cpu_s, None, goal),
            self.peak(),
            Figure("landing bytes a message, with manifest", "B", size, None, LANDING_BYTES, at_most=True),
        ]


def run_cold(place: Path, messages: int, seed: int) -> Cold:
    """Lands messages, and runs the job on them in a process of its own."""
    landed = Fleet(place / "landing", seed).land(messages)
    arguments = ["cloud", "ingest", "--landing", str(place / "landing"), "--tables", str(place / "tables")]
    usage = Usage([sys.executable, "-m", "tools.cli.main", *arguments])
    if usage.exit_code != 0:
        raise ProcessFailed(f"the job ended with exit code {usage.exit_code}: {usage.output}")
    shutil.rmtree(place)
    return Cold(messages, landed, usage.cpu_s, usage.peak_bytes)


def flat(few: Cold, many: Cold) -> list[Figure]:
    """Compares the memory for many messages with that for few."""
    name = f"peak memory with {many.messages:,} messages, of that with {few.messages:,}"
    return [many.peak(), Figure(name, "x", many.peak_bytes / few.peak_bytes, None, FLAT, at_most=True)]
