"""Run by MicroPython's unix port: a device whose modules are executed in place, as a board does from its flash.

`micropython in_place.py IMAGE CONFIG`; the image is mapped into memory outside the heap.
"""

import os
import sys

import ffi
import uctypes
import vfs

PROT_READ, MAP_PRIVATE, O_RDONLY = 1, 2, 0


def map_file(path: str) -> bytearray:
    """Maps the file into memory, without a copy on the heap."""
    c = ffi.open(None)
    size = os.stat(path)[6]
    descriptor = c.func("i", "open", "si")(path, O_RDONLY)
    address = c.func("P", "mmap", "PLiiil")(0, size, PROT_READ, MAP_PRIVATE, descriptor, 0)
    return uctypes.bytearray_at(address, size)


image, config = sys.argv[1:]
vfs.mount(vfs.VfsRom(map_file(image)), "/rom")
sys.path[:] = ["/rom", ".frozen"]
del map_file

import device.main  # noqa: E402 - it is in the image

device.main.main(config)
