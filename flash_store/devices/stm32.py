"""The STM32's internal flash as MicroPython offers it is refused: an external chip takes the store (spi_nor.py)."""

from flash_store.errors import DeviceFailed


def refuse_caching(device) -> None:
    """Raises DeviceFailed when `device` is `pyb.Flash`: nothing that it was told to write is on flash then."""
    try:
        from pyb import Flash  # only an STM32 has it
    except ImportError:
        return
    if isinstance(device, Flash):
        raise DeviceFailed(
            "pyb.Flash keeps a whole sector in RAM and rewrites it up to 5 s later: a power cut in between takes what "
            "was stored, old and new. Use an external flash chip (flash_store.devices.spi_nor)"
        )
