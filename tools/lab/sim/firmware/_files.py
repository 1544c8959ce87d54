"""The file system in a simulated board's flash: littlefs, mounted at the root as MicroPython's _boot.py does."""

import os

import vfs

BOOT_PY = "# This file is executed on every boot (including wake-boot from deepsleep)\n"
ERASED = 0xFF


def device(platform: str, files: int | None):
    """The block device of the file system; None if the flash has no place for one."""
    if platform == "rp2":
        import rp2

        return rp2.Flash() if files is None else rp2.Flash(start=0, len=files)
    import esp32

    for label in ("vfs", "ffat"):
        found = esp32.Partition.find(esp32.Partition.TYPE_DATA, label=label)
        if found:
            return found[0]
    return None


def mount_nothing() -> None:
    """A board without a file system: only the host's is taken away."""
    vfs.umount("/")
    os.chdir("/")


def mount(device, program_bytes: int) -> None:
    """Mounts what is there; on erased flash it makes a file system first, as MicroPython does.

    Raises OSError if neither can be done.
    """
    try:
        files = vfs.VfsLfs2(device, progsize=program_bytes)
    except OSError:
        _check_erased(device)
        print("Performing initial setup")
        vfs.VfsLfs2.mkfs(device, progsize=program_bytes)
        files = vfs.VfsLfs2(device, progsize=program_bytes)
        with files.open("/boot.py", "w") as file:
            file.write(BOOT_PY)
    vfs.umount("/")
    vfs.mount(files, "/")
    os.chdir("/")


def _check_erased(device) -> None:
    sector = bytearray(device.ioctl(5, 0))
    device.readblocks(0, sector, 0)
    if any(byte != ERASED for byte in sector):
        raise OSError(5)
