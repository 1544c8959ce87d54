"""The simulated chip keeps a W25Q's rules, as its datasheet has them."""

import pytest

from tools.lab.sim.spi_nor import W25Q, PowerCut

PAGE = 256


@pytest.fixture
def chip() -> W25Q:
    return W25Q(b"\xef\x30\x10", 1 << 16, seed=1)


def send(chip: W25Q, *parts: bytes, answer: int = 0) -> bytes:
    """One command from chip select to its end."""
    chip.select(0)
    for part in parts:
        chip.take(part)
    buffer = bytearray(answer)
    chip.give(buffer)
    chip.select(1)
    return bytes(buffer)


def change(chip: W25Q, opcode: int, address: int, content: bytes = b"") -> None:
    send(chip, b"\x06")
    send(chip, bytes((opcode,)) + address.to_bytes(3, "big"), content)


def program(chip: W25Q, address: int, content: bytes) -> None:
    change(chip, 0x02, address, content)
    chip.wait_us(3_000)


def status(chip: W25Q) -> int:
    return send(chip, b"\x05", answer=1)[0]


def test_a_program_clears_bits_and_sets_none(chip: W25Q) -> None:
    program(chip, 0, b"\xf0")
    program(chip, 0, b"\x3c")
    assert chip.image[0] == 0x30
    assert chip.rewrites == 1


def test_a_program_beyond_its_page_goes_on_at_the_pages_start(chip: W25Q) -> None:
    program(chip, PAGE + 250, bytes(range(10)))
    assert chip.image[PAGE + 250 : 2 * PAGE] == bytes(range(6))
    assert chip.image[PAGE : PAGE + 4] == bytes(range(6, 10))
    assert chip.image[2 * PAGE : 3 * PAGE] == b"\xff" * PAGE


def test_an_erase_sets_its_whole_sector(chip: W25Q) -> None:
    for address in (0, 4096, 8191, 8192):
        program(chip, address, b"\x00")
    change(chip, 0x20, 5000)
    chip.wait_us(400_000)
    assert chip.image[4096:8192] == b"\xff" * 4096
    assert chip.image[0] == chip.image[8192] == 0


def test_without_write_enable_nothing_is_done(chip: W25Q) -> None:
    send(chip, b"\x02\x00\x00\x00", b"a")
    send(chip, b"\x20\x00\x00\x00")
    assert chip.operations == 0 and chip.image[0] == 0xFF


def test_the_write_enable_latch_resets_when_what_it_enabled_is_done(chip: W25Q) -> None:
    assert status(chip) == 0
    send(chip, b"\x06")
    assert status(chip) == 0x02
    send(chip, b"\x02\x00\x00\x00", b"a")
    assert status(chip) == 0x03
    chip.wait_us(3_000)
    assert status(chip) == 0
    send(chip, b"\x02\x00\x00\x10", b"a")
    assert chip.programs == 1


def test_while_it_is_busy_it_answers_nothing_but_its_status(chip: W25Q) -> None:
    change(chip, 0x20, 0)
    assert send(chip, b"\x9f", answer=3) == b"\xff\xff\xff"
    assert send(chip, b"\x03\x00\x00\x00", answer=2) == b"\xff\xff"
    change(chip, 0x02, 4096, b"a")
    chip.wait_us(400_000)
    assert chip.image[4096] == 0xFF
    assert send(chip, b"\x9f", answer=3) == b"\xef\x30\x10"


def test_a_protected_sector_is_left_alone_and_so_is_the_latch(chip: W25Q) -> None:
    chip.protected.append(1)
    program(chip, 4096, b"a")
    assert chip.image[4096] == 0xFF
    assert status(chip) == 0x02


def test_it_reads_on_over_pages_and_sectors_to_its_end_and_round(chip: W25Q) -> None:
    program(chip, 0, b"start")
    program(chip, (1 << 16) - 3, b"end")
    assert send(chip, b"\x03\x00\xff\xfd", answer=8) == b"endstart"


def test_a_power_cut_tears_a_page_and_no_other(chip: W25Q) -> None:
    chip.cut_at = 1
    with pytest.raises(PowerCut):
        program(chip, PAGE, b"\x00" * PAGE)
    page = chip.image[PAGE : 2 * PAGE]
    assert page != b"\x00" * PAGE and page != b"\xff" * PAGE
    assert chip.image[:PAGE] == chip.image[2 * PAGE : 3 * PAGE] == b"\xff" * PAGE
    chip.restart()
    assert status(chip) == 0


def test_a_power_cut_leaves_a_sector_half_erased(chip: W25Q) -> None:
    for page in range(16):
        program(chip, page * PAGE, b"\x00" * PAGE)
    chip.cut_at = 17
    with pytest.raises(PowerCut):
        change(chip, 0x20, 0)
    pages = {bytes(chip.image[page * PAGE : (page + 1) * PAGE]) for page in range(16)}
    assert len(pages) > 2 and {b"\x00" * PAGE, b"\xff" * PAGE} < pages
