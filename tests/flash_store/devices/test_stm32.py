"""STM32's internal flash is refused, whatever else is taken."""

import pytest

from flash_store.devices.ram import RamFlash
from flash_store.devices.stm32 import refuse_caching
from flash_store.errors import DeviceFailed


def test_the_caching_internal_flash_is_refused_with_the_reason() -> None:
    from pyb import Flash

    with pytest.raises(DeviceFailed, match="keeps a whole sector in RAM and rewrites it up to 5 s later"):
        refuse_caching(Flash())


def test_another_device_is_taken_on_an_stm32_as_anywhere() -> None:
    refuse_caching(RamFlash())
