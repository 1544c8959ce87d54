"""The same store on the real VM, also killed at flash operations."""

import ast
import random
import signal
import subprocess
from pathlib import Path

import pytest

from flash_store.devices.file import FileFlash
from flash_store.log import Log
from tests.flash_store.workload import Model, payload_of
from tools.lab.micropython import MicroPython

PROGRAM = str(Path(__file__).with_name("on_micropython.py"))
STEPS = 400
KILLS = 24


def run(vm: MicroPython, flash: Path, seed: int, granule: int, die_at: int = 0) -> subprocess.CompletedProcess[str]:
    arguments = [PROGRAM, str(flash), str(seed), str(STEPS), str(granule), str(die_at)]
    command = [*vm.argv, "-X", "heapsize=512wk", *arguments]
    return subprocess.run(command, env=vm.environment(), capture_output=True, text=True, timeout=60)


def promised(output: str) -> Model:
    """What a run that was killed had promised, by what it printed."""
    model = Model()
    for line in output.splitlines():
        what, *values = line.split()
        number = values[0] if values else ""
        if what == "hand":
            next_id = max(model.stored, default=0) + 1
            model.in_hand = (next_id, payload_of(next_id, int(number)))
        elif what == "stored":
            assert model.in_hand is not None
            model.stored[int(number)] = model.in_hand[1]
            model.in_hand = None
        elif what == "done":
            model.acknowledged.add(int(number))
        elif what == "forgotten":
            model.forgotten |= model.acknowledged
        elif what == "noted":
            model.received.add(int(number))
        elif what == "changing":
            model.changing = tuple(ast.literal_eval(value) for value in values)
        elif what == "changed":
            model.note_change(*model.changing)
        elif what == "unchanged":
            model.changing = ()
    return model


@pytest.mark.parametrize("granule", [8, 16, 32])
def test_the_workload_runs_on_the_vm_and_cpython_reads_its_flash(
    granule: int, micropython: MicroPython, tmp_path: Path, seed: int
) -> None:
    done = run(micropython, tmp_path / "flash.bin", seed, granule)
    assert done.returncode == 0, done.stderr
    flash = FileFlash(str(tmp_path / "flash.bin"), 512, 8, granule)
    promised(done.stdout).check(Log(flash))
    flash.close()


def test_nothing_durable_is_lost_when_the_vm_is_killed_at_a_flash_operation(
    micropython: MicroPython, tmp_path: Path, seed: int
) -> None:
    whole = run(micropython, tmp_path / "whole.bin", seed, 16)
    assert whole.returncode == 0, whole.stderr
    operations = int(whole.stdout.split()[-1])
    rng = random.Random(seed)
    for die_at in rng.sample(range(1, operations + 1), KILLS):
        path = tmp_path / f"cut-{die_at}.bin"
        killed = run(micropython, path, seed, 16, die_at)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        flash = FileFlash(str(path), 512, 8)
        promised(killed.stdout).check(Log(flash))
        flash.close()


def test_the_heap_does_not_grow_with_the_number_of_appends(micropython: MicroPython, tmp_path: Path) -> None:
    program = f"""
import gc
from flash_store.devices.file import FileFlash
from flash_store.log import Log
flash = FileFlash({str(tmp_path / "flash.bin")!r}, 4096, 8)
Log.format(flash, 1)
log = Log(flash)
def turn(count):
    for _ in range(count):
        log.acknowledge(log.append("telemetry/garage", b"x" * 100))
        log.idle()
    gc.collect()
    return gc.mem_alloc()
turn(500)
before = turn(10)
print(turn(2000) - before)
"""
    command = [*micropython.argv, "-X", "heapsize=128wk", "-c", program]
    done = subprocess.run(command, env=micropython.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 256
