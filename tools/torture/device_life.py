"""One device under torture: its lives on the real VM, its line, and how each of them ends."""

import asyncio
import json
import random
from pathlib import Path

from tools.demo.journal import read_journal
from tools.demo.process import Process
from tools.flash.reader import read_store
from tools.micropython import MicroPython
from tools.sim.network_link import NetworkLink
from tools.torture.device_witness import Witness
from wire.identity import encode_identity

PROGRAM = ["-m", "tools.torture.device_power"]  # run as a file it would find this folder's `device` first
SECTOR_BYTES, SECTORS = 4096, 16
SAMPLING_INTERVAL_MS = 5
HEAP = ["-X", "heapsize=1m"]
LAST_OPERATION_MAX = 80  # of the flash, in a life that one of them ends
LIFE_S = 5.0  # at most: where no operation comes any more, the store being full
MOMENT_S = 0.5  # at most, of a life that a moment ends
LINE_BYTES_MAX = 6_000  # between two cuts of the line
DRAIN_S = 60.0
POWER_CUT = -9
COMMANDS = "commands"


class Tormented:
    """A device of this name in `folder`, connected through a line of its own to the broker at `port`.

    Args:
        qos: of its messages.
        chance: decides all its ends.
        has_commands: it takes messages from `COMMANDS`/NAME and answers them.
    """

    def __init__(
        self,
        vm: MicroPython,
        folder: Path,
        name: str,
        port: int,
        qos: int,
        chance: random.Random,
        has_commands: bool,
    ) -> None:
        self.name = name
        self.witness = Witness(name)
        self.power_cuts = 0
        self.line_cuts = 0
        self._vm = vm
        self._chance = chance
        self._link = NetworkLink("127.0.0.1", port, self.witness.hear)
        self._flash, self._journal = folder / f"{name}.flash", folder / f"{name}.journal"
        self._config, self._output = folder / f"{name}.json", folder / f"{name}.log"
        self._keys = {
            "client_id": name,
            "topic": f"torture/{name}",
            "qos": qos,
            "flash": {"path": str(self._flash), "sector_count": SECTORS},
            "interval_ms": SAMPLING_INTERVAL_MS,
            "clock": "none",
            "sensors": ["host"],
            "readings_limit": 0,
            "journal": str(self._journal),
        }
        if has_commands:
            self._keys["commands"] = f"{COMMANDS}/{name}"

    @property
    def cuts(self) -> int:
        return self.power_cuts + self.line_cuts

    def stored(self) -> set[str]:
        """The identities of the messages that the device knows to be durable."""
        made = read_journal(self.name, self._journal)
        return {encode_identity(one.origin, one.epoch, one.seq) for one in made}

    async def open(self) -> None:
        port = await self._link.open()
        self._keys["port"] = {"kind": "tcp", "host": "127.0.0.1", "port": port}
        self._config.write_text(json.dumps(self._keys))

    async def live_until(self, end: asyncio.Event) -> None:
        """Life after life, each with a power cut at its end."""
        while not end.is_set():
            if not self._link.break_is_ahead:
                self._link.break_after(self._chance.randrange(1, LINE_BYTES_MAX))
                self.line_cuts += 1
            await self._live()

    async def drain(self, commands: list[str]) -> None:
        """A life in peace that makes nothing more, sends what is left and answers what it has been told."""
        own = {command for command in commands if command.startswith(f"{COMMANDS}/{self.name} ")}
        self._link.break_after(None)
        self._keys["readings_limit"] = sum(one.readings for one in read_journal(self.name, self._journal)) or 1
        self._config.write_text(json.dumps(self._keys))
        process = self._process(0)
        await process.start()
        try:
            async with asyncio.timeout(DRAIN_S):
                while not (own <= self.witness.answered and self._is_empty()):
                    await asyncio.sleep(0.2)
        except TimeoutError:
            self.witness.violations.append(
                f"{self.name} does not come to an end: messages are left in its flash, or commands unanswered"
            )
        await process.kill()
        await self._link.cut()

    async def _live(self) -> None:
        last = self._chance.choice((0, self._chance.randrange(1, LAST_OPERATION_MAX)))
        life_s = LIFE_S if last else self._chance.uniform(0, MOMENT_S)
        process = self._process(last)
        await process.start()
        end = asyncio.create_task(process.ended())
        await asyncio.wait([end], timeout=life_s)
        await process.kill()
        code, lines = await end
        if code != POWER_CUT:
            self.witness.violations.append(f"{self.name} ended by itself, exit code {code}: {lines[-1:]}")
        self.power_cuts += 1

    def _process(self, last: int) -> Process:
        seed = self._chance.getrandbits(30)
        argv = [*self._vm.argv, *HEAP, *PROGRAM, str(self._config), str(last), str(seed)]
        return Process(self.name, argv, self._output, self._vm.environment())

    def _is_empty(self) -> bool:
        return not read_store(self._flash.read_bytes(), SECTOR_BYTES).messages
