"""The uptime over wraps of the ticks, and UTC by anchors that are offered, contradicted and slept over."""

import random
import subprocess
import time

import pytest

from device.clock import EARLIEST_UNIX_MS, Clock, SystemClock, Uptime, epoch_offset_s
from tools.lab.micropython import MicroPython

NOON_MS = 1_780_000_000_000
DAY_MS = 86_400_000


class Ticks:
    """A board's ticks with a period in ms."""

    def __init__(self, period: int, ticks: int = 0) -> None:
        self.period = period
        self.ticks = ticks

    def ticks_ms(self) -> int:
        return self.ticks % self.period

    def ticks_diff(self, later: int, earlier: int) -> int:
        """As in MicroPython: within half the period to either side."""
        return (later - earlier + self.period // 2) % self.period - self.period // 2


@pytest.mark.parametrize("period", [1 << 30, 1 << 32], ids=["12 days", "49 days"])
def test_uptime_goes_on_where_the_ticks_wrap(period: int, seed: int) -> None:
    chance = random.Random(seed)
    board = Ticks(period, ticks=period - 1000)
    uptime = Uptime(board.ticks_ms, board.ticks_diff)
    true_ms = 0
    while true_ms < 4 * period:
        step_ms = chance.randrange(Uptime.CALL_MS)
        board.ticks += step_ms
        true_ms += step_ms
        assert uptime.now_ms() == true_ms


def test_uptime_on_a_real_micropython_goes_on_where_its_ticks_wrap(micropython: MicroPython) -> None:
    """Its `ticks_diff` and the largest ticks that it has, of which `ticks_add` finds the period."""
    program = """
from time import ticks_add, ticks_diff
from device.clock import Uptime
ticks = ticks_add(0, -1000)
uptime = Uptime(lambda: ticks, ticks_diff)
found = []
for step in (999, 1, 1, Uptime.CALL_MS, Uptime.CALL_MS, Uptime.CALL_MS, Uptime.CALL_MS):
    ticks = ticks_add(ticks, step)
    found.append(uptime.now_ms())
print(found == [999, 1000, 1001] + [1001 + n * Uptime.CALL_MS for n in (1, 2, 3, 4)])
"""
    done = subprocess.run(
        [*micropython.argv, "-c", program], env=micropython.environment(), capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "True", done.stdout + done.stderr


def told(unix_ms: int = NOON_MS, asked_ms: int = 1000, told_ms: int = 1040, source: str = "gateway") -> Clock:
    clock = Clock(boot_id=7, source="gateway")
    clock.offer(source, unix_ms, asked_ms, told_ms)
    return clock


def test_nothing_has_utc_until_a_source_tells_it() -> None:
    clock = Clock(boot_id=7, source="gateway")
    assert clock.unix_ms(5000) is None and not clock.untold


def test_moments_before_and_after_the_anchor_have_utc_by_their_distance() -> None:
    clock = told()
    assert clock.untold
    assert clock.anchor == (1020, NOON_MS, 20)
    assert (clock.unix_ms(20), clock.unix_ms(1020), clock.unix_ms(3020)) == (NOON_MS - 1000, NOON_MS, NOON_MS + 2000)


@pytest.mark.parametrize("source", ["ntp", "system"])
def test_only_the_configured_source_is_believed(source: str) -> None:
    assert told(source=source).anchor is None


def test_clock_that_was_never_set_is_not_believed() -> None:
    assert told(unix_ms=EARLIEST_UNIX_MS - 1).anchor is None
    assert told(unix_ms=1000).anchor is None
    assert told(unix_ms=EARLIEST_UNIX_MS).anchor is not None


def test_offer_that_agrees_changes_nothing() -> None:
    clock = told()
    clock.untold = False
    assert not clock.offer("gateway", NOON_MS + 60_000 + 35, 61_000, 61_040)
    assert clock.anchor == (1020, NOON_MS, 20) and not clock.untold


@pytest.mark.parametrize("step_ms", [-3_600_000, -100, 100, 3_600_000])
def test_clock_that_steps_makes_a_new_anchor_for_what_comes(step_ms: int) -> None:
    clock = told()
    clock.untold = False
    assert clock.offer("gateway", NOON_MS + 60_000 + step_ms, 61_000, 61_040)
    assert clock.untold and clock.unix_ms(61_020) == NOON_MS + 60_000 + step_ms


def test_offer_that_is_far_surer_makes_a_new_anchor() -> None:
    clock = told(asked_ms=0, told_ms=4000)
    assert clock.error_ms(2000) == 2000
    assert clock.offer("gateway", NOON_MS + 8000, 10_000, 10_010)
    assert clock.error_ms(10_005) == 5


def test_crystal_makes_an_anchor_less_sure_by_the_day() -> None:
    assert told().error_ms(1020 + DAY_MS) == 20 + 8640


def test_deep_sleep_keeps_utc_and_makes_it_less_sure() -> None:
    before = told()
    assert before.anchor is not None
    after = Clock(boot_id=7, source="gateway")
    after.resume(before.anchor, uptime_ms=601_020, slept_ms=600_000)
    assert after.unix_ms(601_020) == NOON_MS + 600_000
    assert after.error_ms(601_020) == 20 + 12_000
    assert not after.untold
    assert after.offer("gateway", NOON_MS + 606_000, 601_500, 601_520)


def test_system_clock_is_read_at_each_moment_and_may_step() -> None:
    shown = [NOON_MS, NOON_MS - DAY_MS, 5, EARLIEST_UNIX_MS - 1]
    clock = SystemClock(7, lambda: shown.pop(0))
    assert [clock.unix_ms(uptime_ms) for uptime_ms in range(4)] == [NOON_MS, NOON_MS - DAY_MS, None, None]
    assert not clock.untold


def test_both_epochs_of_boards_give_seconds_since_1970() -> None:
    def gmtime_of_2000(seconds: int) -> time.struct_time:
        return time.gmtime(seconds + 946_684_800)

    assert epoch_offset_s(time.gmtime) == 0
    seconds_on_such_a_board = 833_315_200
    assert seconds_on_such_a_board + epoch_offset_s(gmtime_of_2000) == NOON_MS // 1000
