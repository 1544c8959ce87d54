"""What is written to a board, and what is refused, by what the board says and what the user gave."""

from dataclasses import replace

import pytest

from flash_store.log import Log
from tools.cli.board.content import MARK
from tools.cli.board.errors import Refused
from tools.cli.board.esp.image import HEAD_BYTES
from tools.cli.board.esp.layout import Layout
from tools.cli.board.esp.plan import Found, Wanted, make_plan
from tools.cli.board.stores import Region, find_stores, look_into
from tools.lab.sim.nor import NorFlash

KIB = 1024
FILES, STORE = range(0x200000, 0x3F0000), range(0x3F0000, 0x400000)
ELSEWHERE = 0x3C0000
BLANK_HEAD, OTHER_HEAD = b"\xff" * HEAD_BYTES, b"\x01" * HEAD_BYTES
FOUND = Found(
    has_table=True,
    is_torn=False,
    program="micropython",
    head=BLANK_HEAD,
    names=None,
    is_rest_blank=True,
    regions=(),
    same=(False, False, False, False),
)
WANTED = Wanted(
    Layout(None, FILES, STORE),
    pieces=[(0x10000, b"program"), (0x1000, b"loader")],
    image=[(0x201000, b"second"), (0x200000, b"first")],
    own_names=["authority.der"],
)


def store_image(messages: int) -> bytes:
    """A store of 16 sectors with this number of messages, none of them acknowledged."""
    nor = NorFlash(4 * KIB, len(STORE) // (4 * KIB), 16)
    Log.format(nor, 31, 16)
    log = Log(nor)
    for number in range(messages):
        log.append("telemetry/garage", b"%d" % number, 1)
    return bytes(nor.image)


def region(messages: int, offset: int = STORE.start, is_named: bool = True) -> Region:
    return look_into(store_image(messages), offset, is_named)


def refusal(found: Found, wanted: Wanted = WANTED) -> str:
    with pytest.raises(Refused) as refused:
        make_plan(found, wanted)
    return str(refused.value)


def test_blank_board_gets_everything_and_is_asked_before_the_firmware() -> None:
    plan = make_plan(replace(FOUND, has_table=False, is_torn=True, program=""), WANTED)
    assert plan.written == WANTED.pieces
    assert plan.image == WANTED.image
    assert plan.asks
    assert not plan.erased


def test_what_the_board_has_is_not_written_again() -> None:
    assert make_plan(replace(FOUND, same=(True, False, True, True)), WANTED).written == [WANTED.pieces[1]]
    plan = make_plan(replace(FOUND, same=(True,) * 4, regions=[region(3)]), WANTED)
    assert not (plan.written or plan.image or plan.erased or plan.asks)
    assert plan.says == ["the store stays: 3 messages without an acknowledgement"]


def test_store_at_its_place_stays_while_everything_else_is_written() -> None:
    plan = make_plan(replace(FOUND, regions=[region(2)]), WANTED)
    assert plan.written and plan.image
    assert not (plan.erased or plan.gone or plan.rescued)


def test_store_elsewhere_with_messages_is_refused_until_they_are_rescued_or_discarded() -> None:
    found = replace(FOUND, regions=[region(1, ELSEWHERE)])
    assert refusal(found) == (
        "the store at 0x3c0000 holds 1 message without an acknowledgement, and its new place is 0x3f0000, with 16 "
        "sectors. --rescue URL sends them first; --discard gives them up"
    )
    plan = make_plan(found, replace(WANTED, rescues=True))
    assert plan.rescued == plan.gone == found.regions
    plan = make_plan(found, replace(WANTED, discards=True))
    assert not plan.rescued
    assert plan.says == ["1 message without an acknowledgement at 0x3c0000: discarded"]


def test_store_elsewhere_without_messages_goes_after_another_look() -> None:
    found = replace(FOUND, regions=[region(0, ELSEWHERE)], same=(True,) * 4)
    plan = make_plan(found, WANTED)
    assert plan.gone == found.regions
    assert plan.image, "the firmware is stopped by erasing its file system's head, so it has to be written again"


def test_rescued_or_discarded_store_at_its_place_is_erased() -> None:
    found = replace(FOUND, regions=[region(1)])
    for wanted in (replace(WANTED, rescues=True), replace(WANTED, discards=True)):
        assert STORE in make_plan(found, wanted).erased


def test_place_of_the_store_with_something_else_is_erased_only_if_no_table_named_it() -> None:
    other = look_into(b"files" * 2000 + b"\xff" * 240, STORE.start, is_named=True)
    assert "a store's place at 0x3f0000 has no store that can be read" in refusal(replace(FOUND, regions=[other]))
    unnamed = replace(other, is_named=False, size=len(STORE))
    assert make_plan(replace(FOUND, regions=[unnamed]), WANTED).erased == [STORE]


def test_store_of_later_firmware_is_refused_wherever_it_is() -> None:
    newer = Region(STORE.start, len(STORE), False, None, "sector 0 has format version 9, known here: up to 2")
    assert "format version 9" in refusal(replace(FOUND, regions=[newer]))


def test_another_program_and_its_files_are_replaced_only_when_asked() -> None:
    other = replace(FOUND, program="blink", head=OTHER_HEAD, is_rest_blank=False)
    told = refusal(other)
    assert "another program, 'blink'" in told
    assert "the file system at 0x200000 cannot be read" in told
    assert "something else at 0x8000" in refusal(replace(FOUND, has_table=False))
    assert make_plan(other, replace(WANTED, replaces=True)).asks


@pytest.mark.parametrize(
    ("names", "foreign"),
    [
        (["boot.py"], []),
        (["boot.py", "notes.txt"], ["notes.txt"]),
        (["main.py", "device.json", "lib", "authority.der", "boot.py"], []),
        (["main.py", "device.json", "music.wav"], ["music.wav"]),
        (["main.py"], ["main.py"]),
        ([MARK, "main.py", "whatever"], []),
    ],
)
def test_files_that_are_not_ours_are_named(names: list[str], foreign: list[str]) -> None:
    found = replace(FOUND, head=OTHER_HEAD, names=names, is_rest_blank=False)
    if foreign:
        assert f"files that are not Holdfast's: {', '.join(foreign)}. --replace" in refusal(found)
    else:
        make_plan(found, WANTED)


def test_file_system_that_was_cut_in_its_making_is_made_anew() -> None:
    make_plan(replace(FOUND, head=OTHER_HEAD, names=None, is_rest_blank=True), WANTED)
    torn = b"\xff" * 4096 + b"\x01" * 4096
    make_plan(replace(FOUND, head=torn, names=None, is_rest_blank=False), WANTED)


def test_store_is_found_where_no_table_says_so() -> None:
    content = b"\x01" * 8 * KIB + store_image(2) + b"\x01" * 4 * KIB
    (found,) = find_stores(content, 0x300000)
    assert found.offset == 0x302000
    assert found.unacknowledged == 2
    assert find_stores(b"\x01" * 64 * KIB, 0) == []


def test_erase_that_was_cut_in_its_last_sector_leaves_nothing() -> None:
    content = b"\xff" * 60 * KIB + b"\xff" * 1000 + store_image(1)[1000 : 4 * KIB]
    assert look_into(content, STORE.start, is_named=True).fault == ""
