"""A queue on littlefs, with a file for each message."""

import errno

from littlefs import LittleFS, LittleFSError, UserContext, lfs
from littlefs.lfs import LFSConfig

from flash_store.block_device import IOCTL_BLOCK_ERASE
from flash_store.errors import StoreFull
from tools.lab.bench.flash.metered_flash import MeteredFlash


class FileQueue:
    """A file has the topic and payload of one message, and is removed when the message is acknowledged. littlefs has
    MicroPython's settings, with the flash's granule as its program size."""

    def __init__(self, flash: MeteredFlash) -> None:
        unit = flash.granule
        self._files = LittleFS(
            context=_OnFlash(flash),
            mount=False,
            block_size=flash.sector_size,
            block_count=flash.sector_count,
            read_size=unit,
            prog_size=unit,
            cache_size=4 * unit,
            lookahead_size=32,
            block_cycles=100,
        )
        self._files.format()
        self._files.mount()
        self._last_id = 0

    def append(self, topic: str, payload: bytes, qos: int) -> int:
        self._last_id += 1
        fs = self._files.fs
        try:
            # Not LittleFS.open: after a failed close, its file closes itself again when it is collected, and aborts.
            file = lfs.file_open(fs, str(self._last_id), "w")
            lfs.file_write(fs, file, topic.encode() + payload)
            lfs.file_close(fs, file)
        except LittleFSError as error:
            if error.code == -errno.ENOSPC:
                raise StoreFull("no block is free") from error
            raise
        return self._last_id

    def note_pubrec(self, message_id: int) -> bool:
        raise NotImplementedError("a queue of files has no QoS 2")

    def acknowledge(self, message_id: int) -> bool:
        self._files.remove(str(message_id))
        return True

    def idle(self) -> None:
        """Does nothing, because littlefs erases only when it needs a block."""


class _OnFlash(UserContext):
    """littlefs's callbacks on a block device."""

    def __init__(self, flash: MeteredFlash) -> None:
        self._flash = flash

    def read(self, cfg: LFSConfig, block: int, off: int, size: int) -> bytearray:
        buffer = bytearray(size)
        self._flash.readblocks(block, buffer, off)
        return buffer

    def prog(self, cfg: LFSConfig, block: int, off: int, data: bytes) -> int:
        self._flash.writeblocks(block, data, off)
        return 0

    def erase(self, cfg: LFSConfig, block: int) -> int:
        self._flash.ioctl(IOCTL_BLOCK_ERASE, block)
        return 0

    def sync(self, cfg: LFSConfig) -> int:
        return 0
