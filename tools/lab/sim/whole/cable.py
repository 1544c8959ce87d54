"""The line between a host's port and a simulated board: its speed, and what goes wrong on it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.lab.sim.virtual_line import BITS_PER_BYTE, Dice
from tools.lab.sim.whole.network_port import NetworkPort
from tools.lab.sim.whole.pseudo_terminal import PseudoTerminal

CONSOLE_BAUD = 115200


@dataclass
class Faults:
    """What goes wrong on the line. A test may change it at any time.

    Attributes:
        noise: one byte in `noise` is another one, in each direction; 0: none is.
        lost: one byte in `lost` does not arrive; 0: all do.
        pull_after: the bytes that still pass, both directions together, before the cable is pulled.
        reset_after: the bytes that still come from the host before the board resets.
    """

    noise: int = 0
    lost: int = 0
    pull_after: int | None = None
    reset_after: int | None = None


class Cable:
    """What comes in by both ports, and goes out by the one that is open.

    Args:
        paced: whether a byte takes the time that it takes on a real line.
        on_pull: called when the fault `pull_after` has pulled the cable.
        on_reset: called when the fault `reset_after` comes.

    Attributes:
        baud: the board's speed. Bytes at another speed arrive as noise. None: it finds out the host's speed itself, as
            a ROM loader does.
    """

    def __init__(
        self,
        path: Path,
        network: NetworkPort,
        dice: Dice,
        paced: bool,
        on_pull: Callable[[], object],
        on_reset: Callable[[], object],
    ) -> None:
        self.faults = Faults()
        self.baud: int | None = None
        self.passed = 0  # bytes, both directions together
        self._path, self._network, self._dice, self._paced = path, network, dice, paced
        self._on_pull, self._on_reset = on_pull, on_reset
        self._terminal: PseudoTerminal | None = PseudoTerminal(path)
        self._incoming: asyncio.Queue[bytes] = asyncio.Queue()

    @property
    def terminal(self) -> PseudoTerminal | None:
        """The port's terminal; None while the cable is pulled."""
        return self._terminal

    def pull(self) -> None:
        """Takes the port away from the host."""
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None
        self._network.hang_up()

    def plug(self) -> None:
        """Gives it back, at the same name."""
        if self._terminal is None:
            self._terminal = PseudoTerminal(self._path)

    async def carry(self) -> None:
        """Carries what the host sends, for ever."""
        await asyncio.gather(self._carry_terminal(), self._carry_network())

    async def read(self) -> bytes:
        """Waits for what arrives at the board."""
        return await self._incoming.get()

    def forget(self) -> None:
        """Drops what has arrived and was not read, as a reset does."""
        while not self._incoming.empty():
            self._incoming.get_nowait()

    async def write(self, content: bytes) -> None:
        """Sends from the board to the host."""
        port = self._network if self._network.is_open else self._terminal
        await self._wait(len(content), None if port is None else port.baud)
        content = self._before_the_pull(content)
        if port is not None:
            await port.write(self._spoil(content, port.baud))
        self._count(len(content))

    async def _carry_terminal(self) -> None:
        while True:
            terminal = self._terminal
            if terminal is None:
                await asyncio.sleep(0.01)
                continue
            try:
                content = await terminal.read()
            except OSError:  # it was pulled
                await asyncio.sleep(0.01)
                continue
            await self._arrive(content, terminal.baud)

    async def _carry_network(self) -> None:
        while True:
            content = await self._network.read()
            await self._arrive(content, self._network.baud)

    async def _arrive(self, content: bytes, host_baud: int | None) -> None:
        await self._wait(len(content), host_baud)
        content = self._before_the_pull(content)
        if (left := self.faults.reset_after) is not None:
            if left <= len(content):
                content = content[:left]
                self.faults.reset_after = None
                asyncio.get_running_loop().call_soon(self._on_reset)
            else:
                self.faults.reset_after = left - len(content)
        self._incoming.put_nowait(self._spoil(content, host_baud))
        self._count(len(content))

    async def _wait(self, size: int, host_baud: int | None) -> None:
        if self._paced:
            await asyncio.sleep(size * BITS_PER_BYTE / (self.baud or host_baud or CONSOLE_BAUD))

    def _before_the_pull(self, content: bytes) -> bytes:
        return content if self.faults.pull_after is None else content[: self.faults.pull_after]

    def _count(self, size: int) -> None:
        self.passed += size
        if (left := self.faults.pull_after) is not None:
            self.faults.pull_after = max(0, left - size)
            if left <= size:
                self.faults.pull_after = None
                self.pull()
                self._on_pull()

    def _spoil(self, content: bytes, host_baud: int | None) -> bytes:
        if self.baud is not None and host_baud is not None and self.baud != host_baud:
            return self._dice.bytes(len(content))
        noise, lost = self.faults.noise, self.faults.lost
        if not noise and not lost:
            return content
        kept = bytearray()
        for byte in content:
            if not lost or self._dice.roll(lost):
                kept.append(byte if not noise or self._dice.roll(noise) else byte ^ 1 << self._dice.roll(8))
        return bytes(kept)
