"""Runs the workload on FileFlash and prints what was promised, for the tests on the real VM.

usage: on_micropython.py FLASH_FILE SEED STEPS GRANULE DIE_AT_OPERATION

The process gets SIGKILL before (odd) or after (even) that program or erase; 0 is never.
"""

import os
import sys

from flash_store.devices.file import FileFlash
from flash_store.log import Log, is_blank
from tests.flash_store.workload import Model, Workload

SECTOR_SIZE, SECTOR_COUNT = 512, 8


class MortalFlash(FileFlash):
    """Dies at an operation."""

    def __init__(self, path: str, granule: int) -> None:
        super().__init__(path, SECTOR_SIZE, SECTOR_COUNT, granule)
        self.operations = 0
        self.die_at = 0

    def writeblocks(self, block: int, buffer, offset: int = 0) -> None:
        self.begin()
        super().writeblocks(block, buffer, offset)
        self.end()

    def ioctl(self, operation: int, argument: int) -> int | None:
        if operation != 6:
            return super().ioctl(operation, argument)
        self.begin()
        result = super().ioctl(operation, argument)
        self.end()
        return result

    def begin(self) -> None:
        self.operations += 1
        if self.operations == self.die_at and self.die_at % 2:
            die()

    def end(self) -> None:
        if self.operations == self.die_at:
            die()


def die() -> None:
    os.system("kill -9 $PPID")


class SpeakingWorkload(Workload):
    """Prints each promise once it is made, and what is in hand before."""

    def store(self, length: int) -> None:
        say("hand", length)
        super().store(length)
        say("stored", self.log.last_id)

    def done(self, message_id: int) -> None:
        say("done", message_id)
        super().done(message_id)

    def noted(self, message_id: int) -> None:
        super().noted(message_id)
        say("noted", message_id)

    def change(self, key, value, do) -> None:
        say("changing", key, value)
        super().change(key, value, do)
        say("unchanged", 0)

    def changed(self, key, value) -> None:
        super().changed(key, value)
        say("changed", 0)

    def note_forgotten(self) -> None:
        super().note_forgotten()
        if self.log.stats()["waiting"] == 0:
            say("forgotten", 0)


def say(what: str, *values) -> None:
    print(what, *[repr(value) for value in values])


def main(path: str, seed: int, steps: int, granule: int, die_at: int) -> None:
    flash = MortalFlash(path, granule)
    if is_blank(flash):
        Log.format(flash, 0x12345678, granule)
    flash.operations, flash.die_at = 0, die_at
    model = Model()
    work = SpeakingWorkload(Log(flash), model, seed, 100)
    for number in range(steps):
        work.step()
        if number % 50 == 0:
            model.check(work.log)
    model.check(work.log)
    print("operations", flash.operations)


main(sys.argv[1], *[int(argument) for argument in sys.argv[2:]])
