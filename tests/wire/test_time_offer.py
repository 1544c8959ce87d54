"""The time in a CONNACK."""

import pytest

from wire.properties import USER_PROPERTY
from wire.time_offer import TIME_PROPERTY, encode_time, offered_time


def test_offered_time_is_read_again() -> None:
    assert offered_time({USER_PROPERTY: [("a", "b"), (TIME_PROPERTY, encode_time(1_780_000_000_123))]}) == (
        1_780_000_000_123
    )


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", " 1", "9" * 16, "\u0661"])
def test_what_is_no_time_is_none(text: str) -> None:
    assert offered_time({USER_PROPERTY: [(TIME_PROPERTY, text)]}) is None


def test_no_offer_is_none() -> None:
    assert offered_time({}) is None
