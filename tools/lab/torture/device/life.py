"""One device under torture: its lives on the real VM, its line, and how each of them ends."""

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tools.cli.flash.reader import read_store
from tools.lab.journal import read_journal
from tools.lab.micropython import MicroPython
from tools.lab.testing.client import end_session
from tools.lab.testing.network_link import NetworkLink
from tools.lab.testing.process import Process, ProcessFailed
from tools.lab.torture.device.kinds import Kind
from tools.lab.torture.device.witness import Witness
from wire.identity import encode_identity

PROGRAM = ["-m", "tools.lab.torture.device.power"]  # run as a file it would find this folder's `device` first
SECTOR_BYTES = 4096
SAMPLING_INTERVAL_MS = 5
HEAP = ["-X", "heapsize=1m"]
LAST_OPERATION_MAX = 80  # of the flash, in a life that one of them ends
LIFE_S = 2.0  # at most, of a life whose end does not come: a full store does nothing without a broker
SAYINGS = ("boot", "connected to")  # a moment after one of these a life ends that no operation ends
MOMENT_S = 0.4  # at most
LINE_BYTES_MAX = 6_000  # between two cuts of the line
OFFLINE, LOSES_SESSION = 0.2, 0.3  # of all lives: without a line; with the loss of the session behind them
DRAIN_S = 60.0
LOOK_S = 0.1
POWER_CUT = -9
COMMANDS = "commands"


class Tormented:
    """A device of this kind in `folder`, connected through a line of its own to the broker at `port`. `commands` are
    the commands sent to it, `excused` the commands that were lost with a session. `chance` decides all its ends."""

    def __init__(self, vm: MicroPython, folder: Path, kind: Kind, port: int, qos: int, chance: random.Random) -> None:
        self.kind = kind
        self.name = kind.name
        self.witness = Witness(self.name)
        self.struck: Counter[str] = Counter()
        self.commands: list[str] = []
        self.excused: set[str] = set()
        self._vm = vm
        self._chance = chance
        self._broker_port = port
        self._link = NetworkLink("127.0.0.1", port, self.witness.hear)
        self._flash, self._journal = folder / f"{self.name}.flash", folder / f"{self.name}.journal"
        self._config, self._output = folder / f"{self.name}.json", folder / f"{self.name}.log"
        self._keys = {
            "client_id": self.name,
            "topic": f"torture/{self.name}",
            "qos": qos,
            "lost_session": kind.lost_session,
            "flash": {"path": str(self._flash), "sector_count": kind.sectors, "on_full": kind.on_full},
            "interval_ms": SAMPLING_INTERVAL_MS,
            "clock": "none",
            "sensors": ["host"],
            "readings_limit": 0,
            "journal": str(self._journal),
        }
        if qos == 2 and kind.answers:
            self._keys["commands"] = self.command_topic

    @property
    def command_topic(self) -> str:
        return f"{COMMANDS}/{self.name}"

    @property
    def cuts(self) -> int:
        return self.struck["power"] + self.struck["line"]

    @property
    def unanswered(self) -> set[str]:
        """The commands whose answer has not been seen on the line and should be."""
        return set(self.commands) - self.witness.answered - self.excused

    def stored(self) -> set[str]:
        """The identities of the messages that the device knows to be durable."""
        made = read_journal(self.name, self._journal)
        return {encode_identity(one.origin, one.epoch, one.seq) for one in made}

    async def open(self) -> None:
        port = await self._link.open()
        self._keys["port"] = {"kind": "tcp", "host": "127.0.0.1", "port": port}
        self._config.write_text(json.dumps(self._keys))

    async def live_until(self, end: asyncio.Event) -> None:
        """Runs the device again and again; each run ends with a power cut."""
        while not end.is_set():
            if self._chance.random() < OFFLINE:
                await self._link.cut()
                self.struck["line"] += 1
                await self._live()
                await self._link.open()
                continue
            if not self._link.break_is_ahead:
                self._link.break_after(self._chance.randrange(1, LINE_BYTES_MAX))
                self.struck["line"] += 1
            await self._live()
            if self.kind.is_forgotten and self._chance.random() < LOSES_SESSION:
                await self._lose_session()

    async def drain(self) -> None:
        """Runs the device without faults until it has sent what is left and answered all commands."""
        self._link.break_after(None)
        self._keys["readings_limit"] = sum(one.readings for one in read_journal(self.name, self._journal)) or 1
        self._config.write_text(json.dumps(self._keys))
        process = self._process(0)
        process.start()
        try:
            async with asyncio.timeout(DRAIN_S):
                while self.unanswered or not self._is_empty():
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            self.witness.violations.append(
                f"{self.name} does not come to an end: messages are left in its flash, or commands unanswered"
            )
        finally:
            process.kill()

    async def close(self) -> None:
        """Ends the line to the broker."""
        await self._link.cut()

    async def _live(self) -> None:
        ends_by_operation = self._chance.random() < 0.5
        last = self._chance.randrange(1, LAST_OPERATION_MAX) if ends_by_operation else 0
        process = self._process(last)
        if violation := await live(process, asyncio.sleep(LIFE_S) if last else self._moment(process)):
            self.witness.violations.append(violation)
        self.struck["power"] += 1

    async def _moment(self, process: Process) -> None:
        moment_s, saying = self._chance.uniform(0, MOMENT_S), self._chance.choice(SAYINGS)
        with contextlib.suppress(ProcessFailed):
            await asyncio.to_thread(process.says, saying, LIFE_S)
        await asyncio.sleep(moment_s)

    async def _lose_session(self) -> None:
        """Makes the broker lose the session while the device is off and its line cut."""
        await self._link.cut()
        self.witness.has_subscribed = False  # so that no command is sent meanwhile
        while not await end_session(self._broker_port, self.name):
            await asyncio.sleep(LOOK_S)  # the broker was cut, perhaps after it had ended the session
        self.struck["session"] += 1
        self.excused |= self.unanswered
        self.witness.begin_session()
        await self._link.open()

    def _process(self, last: int) -> Process:
        argv = powered_command(self._vm, self._config, last, self._chance.getrandbits(30))
        return Process(self.name, argv, self._output, self._vm.environment())

    def _is_empty(self) -> bool:
        store = read_store(self._flash.read_bytes(), SECTOR_BYTES)
        return not (store.messages or store.gaps)


def powered_command(vm: MicroPython, config: Path, last: int, seed: int) -> list[str]:
    """Returns what runs the firmware until its flash operation number `last`, from 1, which is partly done; 0: without
    end. `seed`: how much of it is done."""
    return [*vm.argv, *HEAP, *PROGRAM, str(config), str(last), str(seed)]


async def live(process: Process, moment: Coroutine[Any, Any, None]) -> str | None:
    """Runs a device until its power is cut, by itself or at the end of `moment`. Returns a sentence if it ends in
    another way."""
    process.start()
    end = asyncio.create_task(asyncio.to_thread(process.ended))
    cut = asyncio.create_task(moment)
    try:
        await asyncio.wait([end, cut], return_when=asyncio.FIRST_COMPLETED)
    finally:  # or a run that fails waits for its devices for ever
        cut.cancel()
        process.kill()
    code, lines = await end
    return None if code == POWER_CUT else f"{process.name} ended by itself, exit code {code}: {lines[-1:]}"
