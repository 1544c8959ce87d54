"""The firmware as a process of its own, and what a test looks at from outside."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from tests.support.coroutines import after_each_test
from tests.support.scripted_broker import ScriptedBroker
from tools.cli.paths import source_root
from tools.lab.journal import Made, read_journal
from tools.lab.micropython import MicroPython
from tools.lab.testing.process import Process
from wire.codec.packets import Publish
from wire.identity import IDENTITY_PROPERTY, decode_identity, find_user_property

ORIGIN = "garage-1"
TOPIC = "telemetry/garage"
HEAP = ["-X", "heapsize=256wk"]
DEADLINE_S = 60.0  # to what a test waits for, also on a machine that has much else to do


class Firmware:
    """A device whose files all lie in `folder`; `change` takes keys of its configuration."""

    def __init__(self, vm: MicroPython | None, folder: Path, broker: dict[str, Any], **change: Any) -> None:
        self.journal_path = folder / "journal"
        self.flash_path = folder / "flash.bin"
        self.config_path = folder / "device.json"
        self._config = {
            "client_id": ORIGIN,
            "topic": TOPIC,
            "port": broker,
            "flash": {"path": str(self.flash_path), "sector_count": 16},
            "interval_ms": 10,
            "clock": "system",
            "sensors": ["host"],
            "readings_limit": 0,
            "journal": str(self.journal_path),
        }
        self.change(**change)
        program = f"import device.main; device.main.main({str(self.config_path)!r})"
        self.argv = [*([*vm.argv, *HEAP] if vm else [sys.executable]), "-c", program]
        self.environment = vm.environment() if vm else {**os.environ, "PYTHONPATH": str(source_root())}
        # MicroPython looks for modules in the current folder first: there are none of the checkout's in this one.
        self._folder = folder
        self._log = folder / "device.log"
        self._process = self._new_process()

    _started: ClassVar[list["Firmware"]] = []

    async def start(self) -> None:
        self._started.append(self)
        self._process = self._new_process()
        self._process.start()

    def _new_process(self) -> Process:
        return Process("device", self.argv, self._log, self.environment, folder=self._folder)

    async def says(self, text: str, deadline_s: float = 30.0) -> str:
        """Waits for a line that holds ``text``, and returns it."""
        return await asyncio.to_thread(self._process.says, text, deadline_s)

    async def ended(self) -> tuple[int, list[str]]:
        """Waits for its end, and returns its exit code and its lines."""
        return await asyncio.to_thread(self._process.ended)

    async def kill(self) -> None:
        """SIGKILL: nothing in it gets a chance to tidy up."""
        self._process.kill()

    @property
    def running(self) -> bool:
        return self._process.running

    @classmethod
    async def kill_all(cls) -> None:
        """SIGKILL for all that a test has started."""
        for firmware in cls._started:
            await firmware.kill()
        cls._started.clear()

    def change(self, **change: Any) -> None:
        """For the next start."""
        self._config.update(change)
        self.config_path.write_text(json.dumps(self._config))

    def journal(self) -> list[Made]:
        return list(read_journal(ORIGIN, self.journal_path))

    def made(self) -> int:
        return sum(line.readings for line in self.journal())

    async def end(self) -> list[str]:
        """SIGKILL; returns the lines that it printed."""
        await self.kill()
        return (await self.ended())[1]


after_each_test(Firmware.kill_all)


def tcp(port: int) -> dict[str, Any]:
    return {"kind": "tcp", "host": "127.0.0.1", "port": port}


def seq(publish: Publish) -> int:
    """The message's number, of the identity that it carries."""
    identity = find_user_property(publish.properties, IDENTITY_PROPERTY)
    assert identity is not None
    origin, _, number = decode_identity(identity)
    assert origin == ORIGIN
    return number


def seqs(publishes: list[Publish]) -> list[int]:
    return [seq(publish) for publish in publishes]


def records(publish: Publish) -> list[dict[str, Any]]:
    pack: list[dict[str, Any]] = json.loads(publish.payload)
    return pack


async def published(broker: ScriptedBroker, connection: int, count: int) -> None:
    """Returns when ``count`` messages came over that connection, the first being 0."""
    await eventually(lambda: len(broker.publishes) > connection and len(broker.publishes[connection]) >= count)


async def reached(broker: ScriptedBroker, connection: int, number: int) -> None:
    """Returns when the message of that number came over that connection."""
    await eventually(lambda: len(broker.publishes) > connection and number in seqs(broker.publishes[connection]))


async def passed(broker: ScriptedBroker, connection: int, number: int) -> None:
    """Returns when a message of a higher number came over that connection."""
    await eventually(
        lambda: len(broker.publishes) > connection and any(one > number for one in seqs(broker.publishes[connection]))
    )


async def eventually(condition: Callable[[], object]) -> None:
    """Returns when the condition holds; looks again and again until the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)
