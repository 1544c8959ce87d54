"""The checks of a device before it reads or programs, so that a wrong address cannot touch another sector."""

from flash_store.errors import DeviceFailed


def check_program(device, block: int, offset: int, length: int) -> None:
    """Raises DeviceFailed unless these bytes are whole granules of one sector of `device`."""
    if offset % device.granule or length % device.granule:
        raise DeviceFailed(f"program of {length} bytes in sector {block} at {offset} is not made of whole granules")
    check_within(device, block, offset, length)


def check_within(device, block: int, offset: int, length: int) -> None:
    """Raises DeviceFailed unless these bytes lie in one sector of `device`."""
    if not 0 <= block < device.sector_count:
        raise DeviceFailed(f"there is no sector {block}: the device has {device.sector_count}")
    if offset < 0 or offset + length > device.sector_size:
        raise DeviceFailed(f"{length} bytes in sector {block} at {offset} go beyond the sector")
