"""The firmware on a real MicroPython whose power is cut at one of its flash operations: CONFIG OPERATION SEED.

The operation of that number, from 1, is the last one: a part of it is done, as far as chance says, and SIGKILL ends
the VM. A program is cut at any byte, and of the granule in which that byte lies only some bits are cleared; an erase
leaves the rest of its sector as it was. Commands are answered with what they say.
"""

import os
import random
import sys

import device.main
from flash_store.block_device import IOCTL_BLOCK_ERASE
from flash_store.devices.file import FileFlash

config_path, last, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(seed)
done = 0
whole_program = FileFlash.writeblocks
whole_ioctl = FileFlash.ioctl


def is_last() -> bool:
    global done
    done += 1
    return done == last


def die() -> None:
    os.system("kill -9 $PPID")


def program(self: FileFlash, block: int, buffer: bytes, offset: int = 0) -> None:
    if not is_last():
        whole_program(self, block, buffer, offset)
        return
    cut = random.randrange(len(buffer) + 1)
    torn = bytearray(buffer[:cut])
    while len(torn) % self.granule:
        torn.append(buffer[len(torn)] | random.getrandbits(8))
    if torn:
        whole_program(self, block, torn, offset)
    die()


def ioctl(self: FileFlash, operation: int, argument: int) -> int | None:
    if operation != IOCTL_BLOCK_ERASE or not is_last():
        return whole_ioctl(self, operation, argument)
    rest = bytearray(self.sector_size)
    self.readblocks(argument, rest)
    cut = random.randrange(self.sector_size + 1)
    whole_ioctl(self, operation, argument)
    self._file.seek(argument * self.sector_size + cut)
    self._file.write(rest[cut:])
    die()
    return None


FileFlash.writeblocks = program  # type: ignore[method-assign]
FileFlash.ioctl = ioctl  # type: ignore[method-assign]
device.main.main(config_path, lambda topic, payload: {"command": str(payload, "utf-8")})
