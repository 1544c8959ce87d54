"""MicroPython's block-device protocol, extended form: `readblocks` and `writeblocks` with an offset, and `ioctl`."""

IOCTL_SYNC = 3
IOCTL_BLOCK_COUNT = 4
IOCTL_BLOCK_SIZE = 5
IOCTL_BLOCK_ERASE = 6
