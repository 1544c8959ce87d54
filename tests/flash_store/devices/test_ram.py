"""Flash in RAM keeps flash's rules."""

import pytest

from flash_store.devices.ram import RamFlash
from flash_store.errors import DeviceFailed


@pytest.mark.parametrize("content", [b"a", b"\x00", b"\xff"])
def test_a_granule_is_programmed_only_once_per_erase(content: bytes) -> None:
    flash = RamFlash()
    flash.writeblocks(1, content * 32, 16)
    with pytest.raises(DeviceFailed, match="sector 1 at 32 was programmed since its last erase"):
        flash.writeblocks(1, b"\x00" * 16, 32)
    flash.ioctl(6, 1)
    flash.writeblocks(1, b"b" * 16, 32)
