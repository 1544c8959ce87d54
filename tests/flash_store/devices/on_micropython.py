"""The store at work on a simulated board's flash, mounted again and again; the tests' program on the real VM.

usage: on_micropython.py KIND SEED
"""

import sys

from flash_store.log import Log
from tests.flash_store.devices.board import KINDS
from tests.flash_store.workload import Model, Workload

STEPS = 600


def use(flash, seed: int) -> None:
    """Raises AssertionError where the store and the model do not agree."""
    model = Model()
    work = Workload(Log(flash), model, seed, 900)
    for number in range(STEPS):
        if number % 97 == 0:
            work.flush()
            work.log = Log(flash)
            model.check(work.log)
        work.step()
    work.flush()
    model.check(Log(flash))


def main(kind: str, seed: int) -> None:
    flash = KINDS[kind]()
    Log.format(flash, 0x12345678, flash.granule)
    use(flash, seed)
    print("holds")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
