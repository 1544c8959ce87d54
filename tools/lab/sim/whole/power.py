"""A simulated board with its cable and its power, which runs in a thread while a test or a person uses its port."""

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
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
from tools.lab.sim.whole.network_port import NetworkPort
from tools.lab.sim.whole.vm import Vm

HEAP = "256wk"
DEADLINE_S = 30.0
RISE_S = 0.1  # how long the reset pin takes to rise; real boards take 1 to 10 ms, but their modem lines follow at once
WATCHDOG_S = 0.05
KEPT_BYTES = 64 * 1024
SIGALRM = -14
CAUSES = {
    SLEEPS: DEEPSLEEP_RESET,
    RESETS: HARD_RESET,
    RESTARTS: SOFT_RESET,
    RESTARTS_RAW: SOFT_RESET,
    SIGALRM: WDT_RESET,
}


class Board:
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
        printed: the last bytes that the board has sent.
        starts: how often it has started since it was made, of whatever.
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
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = str(folder / "port")
        self.url = ""
        self.printed = b""
        self.starts = 0
        self.paced = paced
        self._guesses, self._has_own_power = guesses, has_own_power
        (folder / "wiring.py").write_text(wiring)
        self._vm = Vm(micropython or find(), folder, self.platform, heap)
        self._seed = seed
        self._boots_loader = False  # the level of the boot pin at the next reset
        self._is_held = False
        self._idle_at_s = 0.0
        self._cause = PWRON_RESET
        self._state = ""
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._running: asyncio.Task[None] | None = None
        self._rising: asyncio.TimerHandle | None = None
        if not (folder / "wifi").exists():
            self.wifi("up")

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._live, daemon=True, name="board")
        self._thread.start()
        self._ready.result()
        return self

    def __exit__(self, *error: object) -> None:
        self._call(self._stop)
        assert self._thread is not None
        self._thread.join()

    @property
    def faults(self) -> Faults:
        """What goes wrong on the line."""
        return self.cable.faults

    def wifi(self, state: str) -> None:
        """`up`, `down` or another state of `tools.lab.sim.boards.network`."""
        (self.folder / "wifi").write_text(state)

    def reset(self, loader: bool = False) -> None:
        """Presses the reset button; with `loader` while the boot button is held."""
        self._call(lambda: self._reset(loader, PWRON_RESET))

    def pull_cable(self) -> None:
        """Unplugs the cable from the host."""
        self._call(self._pull)

    def plug_cable(self) -> None:
        """Plugs the cable in again."""
        self._call(self._plug)

    def wait_for(self, state: str, deadline_s: float = DEADLINE_S) -> None:
        """Waits until the board is in this state: `loader`, `program`, `off`, or `nothing` where it cannot start.

        Raises TimeoutError.
        """
        self._wait(lambda: self._state == state, f"the board is in state {state!r}", deadline_s)

    def wait_printed(self, text: bytes, deadline_s: float = DEADLINE_S) -> None:
        """Waits until the board has sent this. Raises TimeoutError."""
        self._wait(lambda: text in self.printed, f"the board prints {text!r}", deadline_s)

    def wait_started(self, starts: int, deadline_s: float = DEADLINE_S) -> None:
        """Waits until the board has started so often. Raises TimeoutError."""
        self._wait(lambda: self.starts >= starts, f"start {starts}", deadline_s)

    @abstractmethod
    async def start(self) -> None:
        """What the chip does after a reset, until the next one. Called in the board's own thread."""

    @property
    def takes_loader(self) -> bool:
        """Whether the boot pin was low at the last reset."""
        return self._boots_loader

    def press_nothing(self) -> None:
        """Lets the boot pin go: the next start is that of the program."""
        self._boots_loader = False

    def enter(self, state: str) -> None:
        """Notes what the board does now."""
        with self._news:
            self._state = state
            self._news.notify_all()

    async def send(self, content: bytes) -> None:
        """Sends to the host. What has been sent is noted then: a host that opens the port later does not get it."""
        await self.cable.write(content)
        with self._news:
            self.printed = (self.printed + content)[-KEPT_BYTES:]
            self._news.notify_all()

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
                self._boots_loader = code == LOADS
                return

    async def read(self) -> bytes:
        """Waits for what the host sends."""
        return await self.cable.read()

    def be_busy(self, microseconds: int) -> None:
        """Notes that the flash is busy from now on, where the board is paced."""
        if self.paced:
            self._idle_at_s = max(self._idle_at_s, self._loop.time()) + microseconds / 1_000_000

    async def idle(self) -> None:
        """Waits until the flash is not busy."""
        await asyncio.sleep(max(0.0, self._idle_at_s - self._loop.time()))

    def guess_reset(self, loader: bool) -> None:
        """Resets the board soon, as DTR and RTS would have done."""
        self._loop.call_soon(self._reset, loader, PWRON_RESET)

    def bite(self) -> None:
        """The watchdog that a tool has started resets the board soon."""
        self._loop.call_later(WATCHDOG_S, self._reset, False, WDT_RESET)

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

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._power_on())
        except BaseException as error:
            self._ready.set_exception(error)
            return
        self._ready.set_result(None)  # only now: what stops the loop must not come while it still powers on
        self._loop.run_forever()
        self._loop.run_until_complete(self._wind_up())
        self._loop.close()

    async def _power_on(self) -> None:
        self._network = NetworkPort(self._turn_lines)
        await self._network.open()
        self.url = self._network.url
        self.cable = Cable(Path(self.port), self._network, Dice(self._seed), self.paced, self._pull)
        self._tasks = [asyncio.ensure_future(self.cable.carry()), asyncio.ensure_future(self._reset_when_due())]
        self._reset(False, PWRON_RESET)

    def _stop(self) -> None:
        self._loop.stop()

    async def _wind_up(self) -> None:
        self._vm.power_off()
        self.cable.pull()
        self._network.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_default_executor()

    async def _reset_when_due(self) -> None:
        while True:
            await self.cable.reset_is_due()
            self._reset(False, WDT_RESET)

    def _turn_lines(self, is_reset: bool, is_boot: bool) -> None:
        """What DTR and RTS do to the pins: the chip starts when its reset pin has risen, with the boot pin's level."""
        self._is_boot = is_boot
        if is_reset:
            self._is_held = True
            if self._rising is not None:
                self._rising.cancel()
            self._halt()
        elif self._is_held:
            self._is_held = False
            self._rising = self._loop.call_later(RISE_S, lambda: self._reset(self._is_boot, PWRON_RESET))

    def _pull(self) -> None:
        self.cable.pull()
        if not self._has_own_power:
            self._loop.call_soon(self._halt)
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
        self._boots_loader, self._cause = loader, cause
        self._running = asyncio.ensure_future(self._go_on())

    async def _go_on(self) -> None:
        """Starts again after each reset of the chip by itself."""
        while True:
            self.printed = b""
            self.starts += 1
            await self.start()
            self.cable.forget()

    def _call(self, function: Callable[[], object]) -> None:
        """Calls a function in the board's thread, and waits for it."""
        done: Future[None] = Future()

        def call() -> None:
            try:
                function()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._loop.call_soon_threadsafe(call)
        done.result(DEADLINE_S)

    def _wait(self, condition: Callable[[], bool], what: str, deadline_s: float) -> None:
        with self._news:
            if not self._news.wait_for(condition, deadline_s):
                raise TimeoutError(f"not within {deadline_s:g} s: {what}; it printed {self.printed[-400:]!r}")
