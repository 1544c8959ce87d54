"""A whole ESP32 in simulation: ROM loader, flash, bootloader and MicroPython behind one serial port."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from tools.lab.sim.loader.chips import ESP32, Chip
from tools.lab.sim.loader.commands import LONGEST_PACKET, Commands
from tools.lab.sim.loader.flash_file import FlashFile
from tools.lab.sim.loader.slip import Deframer
from tools.lab.sim.nor import PowerCut
from tools.lab.sim.whole.bootloader import NoStart, Started, start
from tools.lab.sim.whole.firmware_file import MICROPYTHON
from tools.lab.sim.whole.image import MIB
from tools.lab.sim.whole.power import Board

SYNC_BEGIN = bytes.fromhex("c0 00 08 24 00 00 00 00 00 07 07 12 20")
GREETING = "ets Jul 29 2019 12:21:46\r\n\r\nrst:0x1 (POWERON_RESET),boot:0x{strap:x} ({name})\r\n"
WAITING = "waiting for download\r\n"
TRY_AGAIN_S = 0.5  # a bootloader that finds nothing is reset by its watchdog, again and again
CHATTER_S = 0.02


class WholeBoard(Board):
    """A board with this chip; see `Board` for what else it takes.

    Args:
        flash_size: of the flash chip, in bytes, a power of two.
        runs_stub: whether the stub that esptool uploads starts; if not, the chip crashes.

    Attributes:
        flash: the flash chip.
    """

    platform = "esp32"

    def __init__(
        self, folder: Path, chip: Chip = ESP32, *, flash_size: int = 4 * MIB, runs_stub: bool = True, **board: Any
    ) -> None:
        self.machine = f"Simulated {chip.title} module with {chip.title}"
        self.architecture = chip.architecture
        super().__init__(folder, **board)
        self.chip = chip
        self.flash = FlashFile(folder / "flash", flash_size)
        (folder / "flash_bytes").write_text(str(flash_size))
        (folder / "unique_id").write_text(chip.mac.hex())
        self._runs_stub = runs_stub
        self._typed = b""
        self._idle_at_s = 0.0

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.flash.close()

    async def start(self) -> None:
        name = "DOWNLOAD_BOOT(UART0/UART1/SDIO_REI_REO_V2)" if self.pins.boots_loader else "SPI_FAST_FLASH_BOOT"
        await self.send(GREETING.format(strap=0x3 if self.pins.boots_loader else 0x13, name=name).encode())
        if self.pins.boots_loader:
            await self._load()
        else:
            await self._start_from_flash()

    async def _load(self) -> None:
        """The ROM's loader, until it leaves for the program."""
        self.enter("loader")
        self.cable.baud = None
        await self.send(WAITING.encode())
        left = asyncio.Event()
        speeds: list[int] = []
        fresh = partial(Commands, self.chip, self.flash, speeds.append, left.set, self.bite, self._runs_stub)
        commands = fresh()
        deframer = Deframer(LONGEST_PACKET)
        closing = asyncio.ensure_future(self._close_is_reset())
        try:
            while not left.is_set():
                for packet in deframer.feed(await self.cable.read()):
                    if self.guesses and commands.is_used and packet.startswith(SYNC_BEGIN[1:]):
                        commands = fresh()  # esptool would have reset the chip before it
                    await self._idle()  # the flash does one thing at a time
                    busy_us = self.flash.busy_us
                    try:
                        reply = commands.take(packet)
                    except PowerCut:
                        return
                    self._be_busy(self.flash.busy_us - busy_us)
                    if not commands.is_stub:  # the stub receives the next packet meanwhile
                        await self._idle()
                    await self.send(reply)
                    if speeds:
                        self.cable.baud = speeds.pop()
        finally:
            closing.cancel()
            self.pins.boots_loader = False

    def _be_busy(self, microseconds: int) -> None:
        """Notes that the flash is busy from now on, where the board is paced."""
        if self.paced:
            now_s = asyncio.get_running_loop().time()
            self._idle_at_s = max(self._idle_at_s, now_s) + microseconds / 1_000_000

    async def _idle(self) -> None:
        """Waits until the flash is not busy."""
        await asyncio.sleep(max(0.0, self._idle_at_s - asyncio.get_running_loop().time()))

    async def _close_is_reset(self) -> None:
        """On a terminal esptool cannot reset the board at its end, but it closes the port."""
        while True:
            terminal = self.cable.terminal
            if terminal is None or not terminal.is_open:
                await asyncio.sleep(0.01)
                continue
            await terminal.closed()
            if self.guesses and self.cable.terminal is terminal:
                self.guess_reset(loader=False)
                return

    async def _start_from_flash(self) -> None:
        self.cable.baud = None
        self._typed = b""
        try:
            started = start(self.flash, self.chip)
        except NoStart as error:
            self.enter("nothing")
            await self.send(f"{error}\r\n".encode())
            await self._wait_in_vain(TRY_AGAIN_S)
            return
        self._tell_partitions(started)
        if started.program.project == MICROPYTHON:
            await self.run_program()
        else:
            await self._chatter(started.program.project)

    def _tell_partitions(self, started: Started) -> None:
        lines = [
            f"{one.type} {one.subtype} {one.offset} {one.size} {one.name} {int(one.encrypted)}\n"
            for one in started.partitions
        ]
        (self.folder / "partitions").write_text("".join(lines))

    async def _chatter(self, project: str) -> None:
        """A program that is no MicroPython: it prints without end, and listens to nothing."""
        self.enter("program")
        while True:
            await self.send(f"I (1234) {project}: still here\r\n".encode())
            await self._wait_in_vain(CHATTER_S)

    async def _wait_in_vain(self, seconds: float) -> None:
        """Waits, and looks meanwhile for what asks for the loader."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self.saw(await self.cable.read())
        except TimeoutError:
            pass

    def saw(self, content: bytes) -> None:
        """Looks for a SYNC of esptool, which would have reset a board with modem lines."""
        self._typed = (self._typed + content)[-len(SYNC_BEGIN) - len(content) :]
        if self.guesses and SYNC_BEGIN in self._typed:
            self._typed = b""
            self.guess_reset(loader=True)
