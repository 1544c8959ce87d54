"""What is tortured: publishers, a mosquitto, a lander and its disk, with a line on each side of the broker."""

import asyncio
import contextlib
import resource
from collections.abc import Callable
from pathlib import Path

from tools.lab.demo.site import holdfast
from tools.lab.testing.mosquitto import Mosquitto, recommended
from tools.lab.testing.network_link import NetworkLink
from tools.lab.testing.process import Process
from tools.lab.torture.uplink.publisher import Publisher
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


class Site:
    """All processes and files of a run; `open` starts them, `close` ends them.

    Args:
        folder: an empty folder.
        messages: how many the publishers send together.
        inflight: mosquitto's `max_inflight_messages`.
        after_save_s: draws how many seconds mosquitto runs between its save and its kill.
    """

    def __init__(self, folder: Path, messages: int, inflight: int, after_save_s: Callable[[], float]) -> None:
        self._after_save_s = after_save_s
        self.landing, self.tables = folder / "landing", folder / "tables"
        (folder / "mosquitto").mkdir()
        self.landing.mkdir()
        self._broker = Mosquitto(folder / "mosquitto", _settings(inflight))
        self.near = NetworkLink("127.0.0.1", self._broker.port)
        self.far = NetworkLink("127.0.0.1", self._broker.port)
        self._messages = messages
        self._folder = folder
        self._lander: Process | None = None
        self.senders: list[Sender] = []

    @property
    def lander(self) -> Process:
        """The lander's process; only after `open`."""
        assert self._lander is not None
        return self._lander

    async def open(self) -> None:
        """Starts the broker, and then the lander. Raises ProcessFailed, OSError."""
        await self.near.open()
        await self.far.open()
        self._broker.start()
        argv = ["lander", "run", "--name", LANDER, "--group", GROUP, "--landing", str(self.landing)]
        argv += ["--broker", f"mqtt://127.0.0.1:{self.far.port}", "--roll-seconds", str(ROLL_S)]
        self._lander = Process("lander", holdfast(*argv), self._folder / "lander.log")
        self._lander.start()
        await self._subscribed()
        share = self._messages // PUBLISHERS
        self.senders = [
            Sender(f"publisher-{place}", self.near.port, 1 + place % 2, share) for place in range(PUBLISHERS)
        ]

    @property
    def accepted(self) -> int:
        """How many messages the broker has acknowledged and not lost since."""
        return sum(len(sender.accepted) for sender in self.senders)

    async def restart_lander(self) -> None:
        """SIGKILL, and a new start."""
        await asyncio.to_thread(self.lander.kill)
        self.lander.start()

    async def restart_broker(self, *, is_killed: bool) -> None:
        """SIGKILL or SIGTERM, and a new start. The publishers wait until the lander has its subscription again.

        mosquitto acknowledges before it writes, and forgets a QoS 2 message whose handshake ends after its restart. So
        the publishers end what they have begun, and mosquitto saves: it loses nothing that it has acknowledged to them.
        The lander meanwhile goes on, and mosquitto forgets what the lander acknowledges behind the save.
        """
        await self._pause()
        await self.near.cut()
        if is_killed:
            await asyncio.to_thread(self._broker.save)
            await asyncio.sleep(self._after_save_s())
            await asyncio.to_thread(self._broker.kill)
        else:
            await asyncio.to_thread(self._broker.stop)
        self._broker.start()
        await self._subscribed()
        await self.near.open()
        for sender in self.senders:
            sender.allow(sender.count)

    async def _pause(self) -> None:
        """Returns when the publishers have begun no more messages and ended all that they had begun."""
        for sender in self.senders:
            sender.allow(sender.sent)
        await asyncio.gather(*(sender.settled() for sender in self.senders))

    async def cut_line(self) -> None:
        """The lander's connection ends."""
        await self.far.cut()
        await self.far.open()

    def fill_disk(self) -> None:
        """No file of the lander grows: its disk is full."""
        self._limit_files(0)

    def free_disk(self) -> None:
        """The disk has room again."""
        self._limit_files(-1)

    async def ingest(self) -> tuple[int, list[str]]:
        """Runs the job once; returns its exit code and its lines."""
        job = Process("job", holdfast("cloud", "ingest", "--landing", str(self.landing), "--tables", str(self.tables)))
        job.start()
        return await asyncio.to_thread(job.ended)

    async def close(self) -> None:
        """Ends the processes; the lander lands what it holds."""
        if self._lander is not None:
            self.free_disk()
            await asyncio.to_thread(self._lander.stop)
        await asyncio.to_thread(self._broker.stop)
        for link in (self.near, self.far):
            await link.cut()

    async def _subscribed(self) -> None:
        await asyncio.to_thread(self._broker.says, f"{LANDER} 1 $share/{GROUP}/#")

    def _limit_files(self, size: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self.lander.pid, resource.RLIMIT_FSIZE, (size, -1))


def _settings(inflight: int) -> str:
    saved = recommended(inflight).replace("autosave_interval 1\n", f"autosave_interval {AUTOSAVE_INTERVAL}\n")
    return saved + SUBSCRIBES
