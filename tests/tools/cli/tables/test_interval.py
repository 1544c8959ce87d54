"""Intervals of time as options have them."""

import pytest
import typer

from tools.cli.tables.interval import parse_interval, wait_s


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("0.5s", 0.5), ("5m", 300), ("1h", 3600)])
def test_interval_has_a_unit(text: str, seconds: float) -> None:
    assert parse_interval(text) == seconds


@pytest.mark.parametrize("text", ["60", "0s", "-1s", "s", "1d", ""])
def test_bad_interval_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected a number above 0 with s, m or h"):
        parse_interval(text)


@pytest.mark.parametrize(("now_s", "seconds"), [(100, 60), (115, 45), (160, 0), (900, 0)])
def test_a_run_begins_an_interval_after_the_last_one_began_however_long_that_took(now_s: float, seconds: float) -> None:
    assert wait_s(60, 100, now_s) == seconds
