"""Refuses the STM32's internal flash, which MicroPython caches. There an external chip (spi_nor.py) has the store."""

from flash_store.errors import DeviceFailed


def refuse_caching(device) -> None:
    """Raises DeviceFailed if `device` is `pyb.Flash`, because its writes reach flash only later."""
    try:
        from pyb import Flash  # pyright: ignore[reportMissingImports]  # only an STM32 has this module
    except ImportError:
        return
    if isinstance(device, Flash):
        raise DeviceFailed(
            "pyb.Flash keeps a whole sector in RAM and rewrites it up to 5 s later: a power cut in between destroys "
            "old and new messages. Use an external flash chip (flash_store.devices.spi_nor)"
        )
