"""A simulated board with its cable and its power, which runs in a thread while a test or a person uses its port."""

import asyncio
from abc import abstractmethod
from pathlib import Path
from typing import Self

from tools.cli.paths import source_root
from tools.lab.micropython import MicroPython, find
from tools.lab.sim.boards._chip import (
    DEEPSLEEP_RESET,
    HARD_RESET,
    LOADS,
    PWRON_RESET,
    RESETS,
    RESTARTS,
    RESTARTS_RAW,
    SLEEPS,
    SOFT_RESET,
    WDT_RESET,
)
from tools.lab.sim.virtual_line import Dice
from tools.lab.sim.whole.cable import CONSOLE_BAUD, Cable, Faults
from tools.lab.sim.whole.loop_thread import LoopThread
from tools.lab.sim.whole.network_port import NetworkPort
from tools.lab.sim.whole.pins import Pins
from tools.lab.sim.whole.vm import Vm
from tools.lab.sim.whole.watched import Watched

HEAP = "256wk"
WATCHDOG_S = 0.05
SIGALRM = -14
CAUSES = {
    SLEEPS: DEEPSLEEP_RESET,
    RESETS: HARD_RESET,
    RESTARTS: SOFT_RESET,
    RESTARTS_RAW: SOFT_RESET,
    SIGALRM: WDT_RESET,
}


class Board(Watched):
    """A board whose chip is the files in `folder`: with the file `flash` it is the same board after the power was off.

    Used as a context, it has power inside of it. All its methods can be called from any thread but its own.

    Args:
        paced: whether bytes on the line, programs and erases take the time of a real board.
        guesses: a pseudo-terminal has no DTR and RTS. With this the board guesses what esptool wants of them: at a SYNC
            packet it resets into the loader, and when the port is closed it starts its program.
        has_own_power: whether the board goes on when the cable is pulled; others are off until it is plugged in.
        wiring: a program that wires simulated chips to the board's pins (`tools.lab.sim.boards.machine`), run at each
            start by the VM.
        micropython: the VM that stands for the one in the firmware; the one that `tools.lab.micropython` finds.
        heap: the size of its heap, as `-X heapsize` takes it.

    Attributes:
        port: the path of the serial port.
        url: the same port with DTR and RTS, for `--port` of esptool and `connect` of mpremote.
        pins: its reset and boot pins.
        cable: the line to the host.
    """

    platform: str
    machine: str
    architecture: int  # its number in .mpy files

    def __init__(
        self,
        folder: Path,
        *,
        paced: bool = False,
        guesses: bool = True,
        has_own_power: bool = False,
        wiring: str = "",
        micropython: MicroPython | None = None,
        heap: str = HEAP,
        seed: int = 1,
    ) -> None:
        super().__init__()
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = str(folder / "port")
        self.url = ""
        self.paced = paced
        self._guesses, self._has_own_power = guesses, has_own_power
        (folder / "wiring.py").write_text(wiring)
        self._vm = Vm(micropython or find(), folder, self.platform, heap)
        self._seed = seed
        self._cause = PWRON_RESET
        self._running: asyncio.Task[None] | None = None
        if not (folder / "wifi").exists():
            self.wifi("up")

    def __enter__(self) -> Self:
        self._thread = LoopThread("board", self._power_on, self._wind_up)
        self._thread.begin()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.end()

    @property
    def faults(self) -> Faults:
        """What goes wrong on the line."""
        return self.cable.faults

    def wifi(self, state: str) -> None:
        """`up`, `down` or another state of `tools.lab.sim.boards.network`."""
        (self.folder / "wifi").write_text(state)

    def reset(self, loader: bool = False) -> None:
        """Presses the reset button; with `loader` while the boot button is held."""
        self._thread.call(lambda: self._reset(loader, PWRON_RESET))

    def pull_cable(self) -> None:
        """Unplugs the cable from the host."""
        self._thread.call(self._pull)

    def plug_cable(self) -> None:
        """Plugs the cable in again."""
        self._thread.call(self._plug)

    @abstractmethod
    async def start(self) -> None:
        """What the chip does after a reset, until the next one. Called in the board's own thread."""

    async def send(self, content: bytes) -> None:
        """Sends to the host. What has been sent is noted then: a host that opens the port later does not get it."""
        await self.cable.write(content)
        self.note_sent(content)

    async def run_program(self, *options: str) -> None:
        """Runs MicroPython, also over soft resets and sleeps, until the chip resets."""
        self.enter("program")
        self.cable.baud = CONSOLE_BAUD
        if self._cause == PWRON_RESET:
            (self.folder / "rtc").unlink(missing_ok=True)
        mode = ""
        while True:
            (self.folder / "cause").write_text(str(self._cause))
            told = [self.machine, str(source_root()), f"arch={self.architecture}", *options]
            self._vm.power_on(*told, *([mode] if mode else []))
            typing = asyncio.ensure_future(self._type())
            try:
                code = await self._vm.run(self.send)
            finally:
                typing.cancel()
                self._vm.power_off()
            if code not in CAUSES and code != LOADS:  # a fault of the simulation, which is in what was printed
                self.enter("nothing")
                await asyncio.Event().wait()
            self._cause = CAUSES.get(code, HARD_RESET)
            mode = "raw" if code == RESTARTS_RAW else ""
            if code == SLEEPS and not (self.folder / "hurry").exists():
                await asyncio.sleep(int((self.folder / "sleep_ms").read_text()) / 1000)
            if code not in (RESTARTS, RESTARTS_RAW):
                self.pins.boots_loader = code == LOADS
                return

    def guess_reset(self, loader: bool) -> None:
        """Resets the board soon, as DTR and RTS would have done."""
        asyncio.get_running_loop().call_soon(self._reset, loader, PWRON_RESET)

    def bite(self) -> None:
        """The watchdog that a tool has started resets the board soon."""
        asyncio.get_running_loop().call_later(WATCHDOG_S, self._reset, False, WDT_RESET)

    @property
    def guesses(self) -> bool:
        """Whether the lines are to be guessed: on the terminal, which has none."""
        return self._guesses and not self._network.is_open

    def saw(self, content: bytes) -> None:
        """Called with what the host sends to the running program."""

    async def _type(self) -> None:
        while True:
            content = await self.cable.read()
            self.saw(content)
            await self._vm.type(content)

    async def _power_on(self) -> None:
        self.pins = Pins(self._halt, lambda: self._reset(self.pins.boots_loader, PWRON_RESET))
        self._network = NetworkPort(self.pins.turn_lines)
        await self._network.open()
        self.url = self._network.url
        self.cable = Cable(
            Path(self.port),
            self._network,
            Dice(self._seed),
            self.paced,
            self._pull,
            lambda: self._reset(False, WDT_RESET),
        )
        self._carrying = asyncio.ensure_future(self.cable.carry())
        self._reset(False, PWRON_RESET)

    async def _wind_up(self) -> None:
        self._vm.power_off()
        self.cable.pull()
        self._network.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_default_executor()

    def _pull(self) -> None:
        self.cable.pull()
        if not self._has_own_power:
            asyncio.get_running_loop().call_soon(self._halt)
            self.enter("off")

    def _plug(self) -> None:
        self.cable.plug()
        if not self._has_own_power:
            self._reset(False, PWRON_RESET)

    def _halt(self) -> None:
        if self._running is not None:
            self._running.cancel()
            self._running = None
        self._vm.power_off()
        self.cable.forget()

    def _reset(self, loader: bool, cause: int) -> None:
        self._halt()
        self.pins.boots_loader, self._cause = loader, cause
        self._running = asyncio.ensure_future(self._go_on())

    async def _go_on(self) -> None:
        """Starts again after each reset of the chip by itself."""
        while True:
            self.note_start()
            await self.start()
            self.cable.forget()
