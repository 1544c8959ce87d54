"""What every device checks before it programs or reads: a slip must not reach the neighbouring sector."""

from flash_store.errors import DeviceFailed


def check_program(device, block: int, offset: int, length: int) -> None:
    """Raises DeviceFailed unless these are whole granules of one sector that `device` has."""
    if offset % device.granule or length % device.granule:
        raise DeviceFailed(f"program of {length} bytes in sector {block} at {offset} is not made of whole granules")
    check_within(device, block, offset, length)


def check_within(device, block: int, offset: int, length: int) -> None:
    """Raises DeviceFailed unless these bytes lie in one sector that `device` has."""
    if not 0 <= block < device.sector_count:
        raise DeviceFailed(f"sector {block} is none of the device's {device.sector_count}")
    if offset < 0 or offset + length > device.sector_size:
        raise DeviceFailed(f"{length} bytes in sector {block} at {offset} do not lie in the sector")
