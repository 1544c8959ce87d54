"""The time up to which all that was landed is in the tables: what shows it, and what holds it back."""

from pathlib import Path

import pytest

from tests.cloud.receipts.bare import NOON_MS, Bare

MINUTE_MS = 60_000
FIRST, SECOND, THIRD = (NOON_MS + MINUTE_MS * number for number in range(3))


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    """Two landers, whose files are all in the tables; the job planned its last batch long after the last message."""
    bare = Bare(tmp_path)
    bare.landed(1, "lander-1", 1, FIRST)
    bare.landed(1, "lander-2", 1, FIRST - 5)
    bare.landed(2, "lander-1", 2, SECOND)
    bare.landed(2, "lander-1", 3, THIRD)
    bare.planned(1, FIRST)
    bare.planned(2, THIRD + 10 * MINUTE_MS)
    return bare


def test_it_is_when_the_last_message_came_also_beside_a_lander_that_has_been_silent(bare: Bare) -> None:
    assert (bare.landed_up_to().landed_ms, bare.landed_up_to().batch) == (THIRD, 2)


@pytest.mark.parametrize(("lander", "expected"), [("lander-1", THIRD), ("lander-2", FIRST - 5), ("lander-3", 0)])
def test_it_is_not_beyond_the_file_before_one_that_waits(bare: Bare, lander: str, expected: int) -> None:
    bare.waits(lander, {"lander-1": 4, "lander-2": 2, "lander-3": 1}[lander])
    assert bare.landed_up_to().landed_ms == expected


def test_it_is_not_beyond_the_file_before_one_that_was_set_aside(bare: Bare) -> None:
    bare.set_aside("lander-2", 2)
    assert bare.landed_up_to().landed_ms == FIRST - 5
    bare.landed(3, "lander-2", 2, SECOND)
    assert bare.landed_up_to().landed_ms == THIRD


def test_it_is_not_beyond_the_file_before_one_that_is_missing(bare: Bare) -> None:
    bare.landed(3, "lander-1", 5, THIRD + 2 * MINUTE_MS)
    assert bare.landed_up_to().landed_ms == THIRD
    bare.landed(4, "lander-3", 2, THIRD + 3 * MINUTE_MS)  # the first file went before any job saw it
    assert bare.landed_up_to().landed_ms == 0


def test_file_that_brought_no_new_message_tells_no_time_and_the_one_before_it_does(bare: Bare) -> None:
    bare.landed(3, "lander-1", 4, None)
    bare.waits("lander-1", 5)
    assert bare.landed_up_to().landed_ms == THIRD


def test_lander_that_begins_its_numbers_again_is_held_back_by_the_last_file_from_before(bare: Bare) -> None:
    """Its folder is lost, and files 4 and 5 of its first start may have gone with it before any job saw them."""
    bare.waits("lander-1", 1, boot=2)
    assert bare.landed_up_to().landed_ms == 0
    for number in range(1, 7):
        bare.landed(3, "lander-1", number, THIRD + number * MINUTE_MS, boot=2)
    assert bare.landed_up_to().landed_ms == THIRD
    bare.landed(4, "lander-1", 7, THIRD + 7 * MINUTE_MS, boot=3)
    assert bare.landed_up_to().landed_ms == THIRD


def test_file_that_is_missing_stays_missing_when_a_later_start_gives_its_number_again(bare: Bare) -> None:
    bare.landed(3, "lander-1", 5, THIRD + 2 * MINUTE_MS)
    for number in range(1, 5):
        bare.landed(4, "lander-1", number, THIRD + 3 * MINUTE_MS, boot=2)
    assert bare.landed_up_to().landed_ms == THIRD


def test_starts_of_a_lander_that_go_on_with_its_numbers_hold_nothing_back(bare: Bare) -> None:
    bare.landed(3, "lander-1", 4, THIRD + MINUTE_MS, boot=7)
    bare.landed(3, "lander-1", 5, THIRD + 2 * MINUTE_MS, boot=2)
    bare.landed(4, "lander-1", 6, THIRD + 3 * MINUTE_MS, boot=5)
    assert bare.landed_up_to().landed_ms == THIRD + 3 * MINUTE_MS


def test_clock_that_is_ahead_does_not_reach_beyond_the_last_plan_of_the_job(bare: Bare) -> None:
    bare.landed(3, "lander-2", 2, THIRD + 10**12)
    bare.planned(3, THIRD + 20 * MINUTE_MS)
    assert bare.landed_up_to().landed_ms == THIRD + 20 * MINUTE_MS


def test_without_a_landing_folder_no_time_is_known(bare: Bare) -> None:
    bare.landing.rmdir()
    assert bare.landed_up_to().landed_ms == 0


def test_rows_of_a_batch_that_does_not_count_tell_no_time(bare: Bare) -> None:
    bare.landed(3, "lander-2", 2, THIRD + MINUTE_MS)
    (bare.folder / "landing_files/_delta_log/00000000000000000005.json").unlink()
    assert (bare.landed_up_to().landed_ms, bare.landed_up_to().batch) == (THIRD, 2)


def test_other_files_of_the_landing_folder_hold_nothing_back(bare: Bare) -> None:
    (bare.landing / "notes.json").write_text("{}")
    (bare.landing / ".lander-1.lock").write_text("")
    assert bare.landed_up_to().landed_ms == THIRD
