"""What is tortured: publishers, a mosquitto, a lander and its disk, with a line on each side of the broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tools.lab.testing.mosquitto import Mosquitto, recommended
from tools.lab.testing.network_link import NetworkLink
from tools.lab.testing.process import Process, holdfast
from tools.lab.torture.publisher import Publisher
from tools.lab.torture.site import Site
from wire.reasons import NO_MATCHING_SUBSCRIBERS

LANDER = "lander-1"
GROUP = "lander"
PUBLISHERS = 4  # half of them at QoS 1, half at QoS 2
ROLL_S = 1
AUTOSAVE_INTERVAL = 0
"""mosquitto saves only when it is told to. It writes all that waits each time, and does no more where 100,000 messages
wait and it saves after a few hundred changes."""
SUBSCRIBES = "log_type error\nlog_type warning\nlog_type notice\nlog_type subscribe\n"


class Sender(Publisher):
    """Publishes small readings."""

    window = 200

    def is_refused(self, reason_code: int) -> bool:
        # mosquitto 2.0.11 has no shared subscription after a restart until a member connects.
        return super().is_refused(reason_code) or reason_code == NO_MATCHING_SUBSCRIBERS


class LandingSite(Site):
    """All processes and files of a run; `open` starts them, `close` ends them.

    Args:
        folder: an empty folder.
        messages: how many the publishers send together.
        inflight: mosquitto's `max_inflight_messages`.

    Attributes:
        near, far: the lines of the publishers and of the lander.
    """

    def __init__(self, folder: Path, messages: int, inflight: int) -> None:
        super().__init__()
        self.landing, self.tables = folder / "landing", folder / "tables"
        (folder / "mosquitto").mkdir()
        self.landing.mkdir()
        self.broker = Mosquitto(folder / "mosquitto", _settings(inflight))
        self.near = NetworkLink("127.0.0.1", self.broker.port)
        self.far = NetworkLink("127.0.0.1", self.broker.port)
        argv = holdfast(
            "lander", "run", "--volatile", "--name", LANDER, "--group", GROUP, "--landing", str(self.landing)
        )
        argv += ["--broker", f"mqtt://127.0.0.1:{self.far.port}", "--roll-seconds", str(ROLL_S)]
        self.lander = Process("lander", argv, folder / "lander.log")
        share = messages // PUBLISHERS
        self.processes = {"the broker": self.broker, "the lander": self.lander}
        self.links = {"near": self.near, "far": self.far}
        self.publishers = [
            Sender(f"publisher-{place}", self.near.port, 1 + place % 2, share) for place in range(PUBLISHERS)
        ]

    async def open(self) -> None:
        """Starts the broker, and then the lander. Raises ProcessFailed, OSError."""
        await self.near.open()
        await self.far.open()
        self.broker.start()
        self.lander.start()
        await self._subscribed()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Lets the broker be ended and started inside. Before that the publishers end what they have begun, and they
        wait until the lander has its subscription again."""
        limits = [publisher.limit for publisher in self.publishers]
        for publisher in self.publishers:
            publisher.allow(publisher.sent)
        await asyncio.gather(*(publisher.settled() for publisher in self.publishers))
        await self.near.cut()
        yield
        await self._subscribed()
        await self.near.open()
        for publisher, limit in zip(self.publishers, limits, strict=True):
            publisher.allow(limit)

    async def ingest(self) -> tuple[int, list[str]]:
        """Runs the job once; returns its exit code and its lines."""
        argv = holdfast("cloud", "ingest", "--landing", str(self.landing), "--tables", str(self.tables))
        return await Process("job", argv).to_end()

    async def _subscribed(self) -> None:
        await asyncio.to_thread(self.broker.says, f"{LANDER} 1 $share/{GROUP}/#")


def _settings(inflight: int) -> str:
    saved = recommended(inflight).replace("autosave_interval 1\n", f"autosave_interval {AUTOSAVE_INTERVAL}\n")
    return saved + SUBSCRIBES
