"""``holdfast lab bench flash``: what the store costs on simulated flash and a real MicroPython, beside littlefs."""

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from flash_store.log import Log
from tools.cli.failure import failing_on
from tools.lab.bench.flash.file_queue import FileQueue
from tools.lab.bench.flash.metered_flash import MeteredFlash
from tools.lab.bench.flash.workload import OUTSTANDING, SECTORS, TOPIC, Use, Workload, fill, run
from tools.lab.figure import Figure
from tools.lab.micropython import MicroPython, MicroPythonUnavailable, find
from tools.lab.result import JSON_OPTION, end_bench, quick_option

GRANULE = 16
FILE_GRANULE = 32  # MicroPython's value for littlefs; with 16 a message of 128 bytes needs a block of its own
LONG_RUN = 10  # times as many messages, to measure wear
STRAGGLERS_MAX = 10_000  # messages of the workload that leaves one in ten: more fill the ring
LIVE_MESSAGES = 1000
JUST_MOUNTED = 1000  # messages: not once around, so that each sector is looked at before its first use
READ_BYTES_PER_S = 20_000_000
W25Q_CYCLES, STM32_CYCLES = 100_000, 10_000
W25Q128_SECTORS = 4096
PAGES_MAX = 3  # a record of 144 bytes lies in two pages at most, the OPEN header of a new sector in one
VM_TIMEOUT_S = 1800


def flash(
    messages: Annotated[int, typer.Option(min=100, help="How many messages to store.")] = 10_000,
    quick: Annotated[bool, quick_option(messages=1_000)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Count bytes programmed, erases and memory of the flash store, and of littlefs for the same messages.

    Runs on a simulated flash chip and a real MicroPython. Ends with 1 if a goal is missed.
    """
    started = time.monotonic()
    with failing_on(MicroPythonUnavailable, command="lab bench flash"):
        report = measure(messages)
    about = {"workload": report.workload, "store": report.store, "littlefs": report.littlefs, "vm": report.vm}
    seconds = time.monotonic() - started
    end_bench("flash", report.figures, seconds, as_json, names=("measured", "littlefs"), about=about)


@dataclass(frozen=True)
class Report:
    """All figures, and what they are of."""

    workload: str
    store: str
    littlefs: str
    vm: str
    figures: list[Figure]


def measure(messages: int) -> Report:
    """Measures everything: about two minutes for 10,000 messages. Raises MicroPythonUnavailable."""
    vm = find()
    ram = _run_on_vm(vm, LONG_RUN * messages)
    figures = [
        *_message_figures(messages),
        *_qos2_figures(messages),
        *_ram_figures(ram),
        *_mount_figures(),
        *_other_figures(messages),
    ]
    return Report(
        workload=f"{messages:,} messages of 128 bytes, {len(TOPIC)} of them topic, {OUTSTANDING} outstanding, after "
        "once around a ring of 64 sectors of 4 KiB; idle() after each",
        store=f"granule {GRANULE}",
        littlefs=f"littlefs-python {version('littlefs-python')}, a file a message, read and program unit "
        f"{FILE_GRANULE}, cache {4 * FILE_GRANULE}",
        vm=f"MicroPython {vm.version}, {8 * ram['word']} bits",
        figures=figures,
    )


def _cost(name: str, measured: float, bar: float | None = None, littlefs: float | None = None) -> Figure:
    return Figure(name, "", measured, littlefs, bar, at_most=True)


def _on_store(workload: Workload) -> Use:
    flash = MeteredFlash(SECTORS, GRANULE)
    Log.format(flash, 1)
    return run(workload, flash, Log(flash))


def _on_littlefs(workload: Workload) -> Use:
    flash = MeteredFlash(SECTORS, FILE_GRANULE)
    return run(workload, flash, FileQueue(flash))


def _message_figures(messages: int) -> Iterator[Figure]:
    ours, theirs = _on_store(Workload(messages)), _on_littlefs(Workload(messages))
    yield _cost("bytes programmed / message", ours.programmed, 165, theirs.programmed)
    yield _cost("erases / message", ours.erases_per_message, 0.040, theirs.erases_per_message)
    yield _cost("wear, max / average of sectors", ours.wear_ratio, None, theirs.wear_ratio)
    yield _cost("bytes read / append", ours.read_on_append, None, theirs.read_on_append)
    own, others = (use.append.read / use.append.programmed for use in (ours, theirs))
    yield _cost("bytes read / append, times what it programs", own, 1, others)
    fresh = _on_store(Workload(JUST_MOUNTED, is_warm=False))
    yield _cost("the same just after a mount", fresh.append.read / fresh.append.programmed)
    yield _cost("bytes read by the worst append", ours.worst.read, None, theirs.worst.read)
    yield _cost("bytes read / message, all in all", ours.total.read / messages, None, theirs.total.read / messages)
    yield _cost("erases inside appends", ours.append.erases, 0, theirs.append.erases)
    yield _cost("page programs of the worst append", ours.worst.pages, PAGES_MAX, theirs.worst.pages)
    yield _cost("ms of the worst append", ours.worst.time_us / 1000, None, theirs.worst.time_us / 1000)
    busy = _on_store(Workload(messages, is_idle=False))
    yield _cost("ms of the worst append, idle() never called", busy.worst.time_us / 1000)

    long = Workload(LONG_RUN * messages)
    ours, theirs = _on_store(long), _on_littlefs(long)
    name = f"after {long.messages:,} messages"
    yield _cost(f"wear, max - min of sectors, {name}", ours.wear_spread, 1, theirs.wear_spread)
    yield _cost(f"wear, max / average, {name}", ours.wear_ratio, None, theirs.wear_ratio)
    for chip, cycles in (("W25Q", W25Q_CYCLES), ("STM32", STM32_CYCLES)):
        name = f"years at 1 message/s, {chip} ({cycles // 1000}k cycles), 256 KiB"
        yield _cost(name, ours.years(cycles), None, theirs.years(cycles))
    whole = ours.years(W25Q_CYCLES) * W25Q128_SECTORS / SECTORS
    yield _cost("years at 1 message/s, a whole W25Q128 (16 MiB)", whole)


def _qos2_figures(messages: int) -> Iterator[Figure]:
    once, twice = _on_store(Workload(messages)), _on_store(Workload(messages, qos=2))
    yield _cost("QoS 2: bytes programmed more / message", twice.programmed - once.programmed, 18)
    yield _cost("QoS 2: synchronous writes more / message", twice.pubrec.records / messages, 1)


def _ram_figures(ram: dict[str, int]) -> Iterator[Figure]:
    yield _cost("RAM: bytes / live message", ram["live"] / LIVE_MESSAGES, 8)
    yield _cost("RAM: bytes of a store of 64 sectors", ram["fixed"], 512)
    yield _cost(f"RAM: bytes more after {ram['appends']:,} appends", ram["growth"], 0)


def _run_on_vm(vm: MicroPython, appends: int) -> dict[str, int]:
    program = Path(__file__).with_name("ram.py")
    command = [*vm.argv, "-X", "heapsize=2m", str(program), str(LIVE_MESSAGES), str(appends)]
    done = subprocess.run(
        command, env=vm.environment(), stdout=subprocess.PIPE, text=True, timeout=VM_TIMEOUT_S, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "appends": appends}


def _mount_figures() -> Iterator[Figure]:
    yield _cost("mount: bytes read, 64 sectors, empty", _read_at_mount(SECTORS, False), 8192)
    small, large = _read_at_mount(SECTORS, True), _read_at_mount(1024, True)
    for name, read in (("256 KiB", small), ("4 MiB", large)):
        yield _cost(f"mount: bytes read, {name}, full", read)
        yield _cost(f"mount: s of reads at 20 MB/s, {name}, full", read / READ_BYTES_PER_S, 1)
    yield _cost("mount: bytes read, 4 MiB as a multiple of 256 KiB", large / small)


def _read_at_mount(sectors: int, is_full: bool) -> int:
    """Returns the bytes that a mount reads of an empty store, or of a full one."""
    flash = MeteredFlash(sectors, GRANULE)
    Log.format(flash, 1)
    if is_full:
        fill(Log(flash))
    before = flash.bytes_read
    Log(flash)
    return flash.bytes_read - before


def _other_figures(messages: int) -> Iterator[Figure]:
    left = Workload(min(messages, STRAGGLERS_MAX), has_stragglers=True)
    ours = _on_store(left)
    name = f"1 in 10 never acknowledged, {left.messages:,}"
    yield _cost(f"{name}: bytes programmed / message", ours.programmed)
    flash, files = MeteredFlash(SECTORS, GRANULE), MeteredFlash(SECTORS, FILE_GRANULE)
    Log.format(flash, 1)
    yield _cost("messages that fit in 256 KiB", fill(Log(flash)), None, fill(FileQueue(files)))
