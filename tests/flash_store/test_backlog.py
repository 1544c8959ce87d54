"""An outage of any length ends in a full store, and nothing of what the store costs grows with it."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from flash_store.devices.file import FileFlash
from flash_store.devices.ram import RamFlash
from flash_store.errors import HeapFull
from flash_store.log import Log
from tests.micropython.runner import compile_package
from tools.cli.paths import source_root
from tools.lab.micropython import MicroPython
from tools.lab.sim.nor import NorFlash

PROGRAM = str(Path(__file__).with_name("backlog.py"))
SECTORS = 64
ALLOWANCE_KIB = 8
TOPIC = "telemetry/garage"


class Vm:
    """A MicroPython that imports `flash_store` from the folder `packages`."""

    def __init__(self, micropython: MicroPython, packages: Path) -> None:
        self._micropython = micropython
        self._packages = packages

    def run(self, heap_kib: int, what: str, flash: Path, sizes: str) -> subprocess.CompletedProcess[str]:
        heap = ["-X", f"heapsize={heap_kib}k"]
        command = [*self._micropython.argv, *heap, PROGRAM, what, str(flash), str(SECTORS), sizes]
        environment = {**self._micropython.environment(), "MICROPYPATH": f"{self._packages}:.frozen"}
        return subprocess.run(command, env=environment, cwd=self._packages, capture_output=True, text=True, timeout=120)

    def least_heap_kib(self, flash: Path) -> int:
        """In which an empty store mounts and takes a message."""
        fails, runs = 16, 512
        while runs - fails > 1:
            middle = (fails + runs) // 2
            shutil.copy(flash, copy := flash.with_suffix(".copy"))
            if self.run(middle, "start", copy, "76").returncode:
                fails = middle
            else:
                runs = middle
        return runs


def format_file(path: Path) -> None:
    device = FileFlash(str(path), 4096, SECTORS)
    Log.format(device, 1)
    device.close()


@pytest.fixture(scope="module", params=["py", "mpy"])
def least_heap(
    request: pytest.FixtureRequest, micropython: MicroPython, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Vm, int]:
    """A VM with the sources, or with the compiled modules that boards get; and the least heap of an empty store."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "mpy":
        compile_package("flash_store", folder)
    vm = Vm(micropython, folder if request.param == "mpy" else source_root())
    format_file(folder / "empty.bin")
    return vm, vm.least_heap_kib(folder / "empty.bin")


@pytest.mark.parametrize("sizes", ["76", "40,900,76,300", "900"])
def test_a_full_store_starts_and_drains_in_order_in_the_heap_of_an_empty_one_and_8_kib(
    sizes: str, least_heap: tuple[Vm, int], tmp_path: Path
) -> None:
    vm, heap = least_heap[0], least_heap[1] + ALLOWANCE_KIB
    format_file(flash := tmp_path / "flash.bin")
    filled = vm.run(heap, "fill", flash, sizes)
    assert filled.returncode == 0, filled.stderr
    assert int(filled.stdout) > 200
    assert vm.run(heap, "start", flash, sizes).stdout == filled.stdout
    drained = vm.run(heap, "drain", flash, sizes)
    assert (drained.stdout, drained.stderr) == ("0\n", "")


def test_the_heap_does_not_grow_with_the_backlog(micropython: MicroPython) -> None:
    program = """
import gc
from flash_store.devices.ram import RamFlash
from flash_store.log import Log
device = RamFlash(4096, 64)
Log.format(device, 1)
log = Log(device)
def add(count):
    for _ in range(count):
        log.append("telemetry/garage", b"x" * 60)
    gc.collect()
    return gc.mem_alloc()
before = add(100)
print(add(2000) - before)
"""
    command = [*micropython.argv, "-X", "heapsize=2m", "-c", program]
    done = subprocess.run(command, env=micropython.environment(), capture_output=True, text=True, timeout=60)
    assert int(done.stdout) < 256


MANY = """
from flash_store.devices.ram import RamFlash
from flash_store.log import Log
class Formatted(RamFlash):
    def __init__(self, count):
        super().__init__(4096, 6)
        self.count = 6
        Log.format(self, 1)
        self.count = count
    def ioctl(self, operation, argument):
        return self.count if operation == 4 else super().ioctl(operation, argument)
    def readblocks(self, block, buffer, offset=0):
        super().readblocks(min(block, 5), buffer, offset)
    def writeblocks(self, block, buffer, offset=0):
        super().writeblocks(min(block, 5), buffer, offset)
Log(Formatted({count})).append("t", b"x")
"""


def mounts(vm: MicroPython, compiled: Path, heap_kib: int, sectors: int) -> bool:
    """Whether `sectors` empty sectors mount in this heap; with compiled modules, as on a board."""
    program = MANY.replace("{count}", str(sectors))
    command = [*vm.argv, "-X", f"heapsize={heap_kib}k", "-c", program]
    environment = {**vm.environment(), "MICROPYPATH": f"{compiled}:.frozen"}
    done = subprocess.run(command, env=environment, cwd=compiled, capture_output=True, timeout=60)
    return done.returncode == 0


def test_4096_empty_sectors_mount_in_20_bytes_of_heap_each(micropython: MicroPython, tmp_path: Path) -> None:
    compile_package("flash_store", tmp_path)
    fails, runs = 16, 512
    while runs - fails > 1:
        middle = (fails + runs) // 2
        fails, runs = (fails, middle) if mounts(micropython, tmp_path, middle, 16) else (middle, runs)
    assert mounts(micropython, tmp_path, runs + 4096 * 20 // 1024, 4096)


def work_of_appends(sectors: int) -> tuple[int, int]:
    """(Python calls, bytes read) of messages that come and go, after once around a small ring."""
    device = NorFlash(4096, sectors, 16)
    Log.format(device, 1)
    log = Log(device)
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    def turn(number: int) -> None:
        for _ in range(number):
            log.acknowledge(log.append(TOPIC, bytes(60)))
            log.idle()

    turn(1000)
    device.bytes_read = 0
    sys.setprofile(count)
    try:
        turn(1000)
    finally:
        sys.setprofile(None)
    return calls, device.bytes_read


def test_an_append_costs_the_same_in_a_store_of_many_sectors() -> None:
    calls, read = work_of_appends(16)
    many_calls, many_read = work_of_appends(1024)
    assert many_calls <= 1.05 * calls
    assert many_read <= 2 * read, "no more than a look at each sector before its first use"


def test_a_full_store_of_many_sectors_drops_its_oldest_at_the_cost_of_a_small_one() -> None:
    def cost(sectors: int) -> int:
        device = NorFlash(512, sectors, 16)
        Log.format(device, 1)
        log = Log(device, on_full="drop_oldest")
        while not log.gaps():
            log.append("t", bytes(60))
        device.bytes_read = 0
        for _ in range(200):
            log.append("t", bytes(60))
        return device.bytes_read

    assert cost(200) <= 1.5 * cost(20)


def test_a_message_for_which_ram_does_not_suffice_is_dropped_with_a_gap_and_the_next_one_is_stored() -> None:
    device = NorFlash(512, 8, 16)
    Log.format(device, 1)
    log = Log(device)
    log.append("t", b"before")

    class Scarce(bytes):
        def __radd__(self, other: object) -> bytes:
            raise MemoryError

        def __len__(self) -> int:
            raise MemoryError

    with pytest.raises(HeapFull, match="no RAM to store message 2"):
        log.append("t", Scarce(b"too much"))
    assert log.append("t", b"after") == 3
    for again in (log, Log(device)):
        assert [message[0] for message in again.messages()] == [1, 3]
        assert again.gaps() == [(2, 2, 1, "memory")]


def test_a_drained_backlog_leaves_the_store_as_if_it_had_never_been() -> None:
    device = RamFlash(512, 16)
    Log.format(device, 1)
    log = Log(device, on_full="drop_oldest")
    for _ in range(500):
        log.append("t", bytes(60))
    for message in log.messages():
        log.acknowledge(message[0])
    log.flush()
    log.idle()
    assert len(Log(device)) == 0
    assert log.append("t", b"x") == 501
