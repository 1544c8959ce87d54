"""What an RP2's storage area may hold."""

import pytest

from flash_store.devices.rp2 import Rp2Flash
from flash_store.errors import DeviceFailed
from flash_store.log import Log


@pytest.mark.parametrize(
    ("start", "length"), [(100, 4096), (0, 5000), (0, 17 * 4096), (16 * 4096, 4096), (-4096, 4096)]
)
def test_a_region_that_is_not_whole_sectors_of_the_area_is_refused(start: int, length: int) -> None:
    with pytest.raises(DeviceFailed, match=f"{length} bytes from {start} are not whole sectors of this board's"):
        Rp2Flash(start, length)


def test_a_store_leaves_what_lies_around_its_region_alone() -> None:
    from rp2 import STORAGE

    STORAGE[:] = b"f" * len(STORAGE)
    flash = Rp2Flash(4 * 4096, 8 * 4096)
    Log.format(flash, 1, flash.granule)
    log = Log(flash)
    for _ in range(200):
        log.acknowledge(log.append("topic", b"payload" * 20))
        log.idle()
    assert STORAGE[: 4 * 4096] == STORAGE[12 * 4096 :] == b"f" * 4 * 4096


def test_a_record_takes_whole_pages() -> None:
    from rp2 import STORAGE

    STORAGE[:] = b"\xff" * len(STORAGE)
    flash = Rp2Flash(0, 8 * 4096)
    Log.format(flash, 1, flash.granule)
    Log(flash).append("topic", b"payload")
    page = STORAGE.index(b"topicpayload") // 256 * 256
    assert STORAGE[page + 256 : page + 512] == b"\xff" * 256
