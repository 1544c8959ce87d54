"""What the report says first."""

import pytest

from tools.cli.report.figures import Verdict
from tools.cli.report.verdict import percent, tell, written

COMPLETE = Verdict(
    arrived=3_412_000,
    missing=0,
    conflicts=0,
    readings=9_000_000,
    explained=2,
    in_transit=0,
    unexplained=0,
    origins=3,
    unstated=0,
    quarantined=0,
)


def test_it_is_complete_where_nothing_is_missing_and_statements_are_about_all_origins() -> None:
    told = tell(COMPLETE)
    assert (told.kind, told.headline) == ("complete", "Complete: 100 % of 3,412,000 messages, 2 gaps explained")
    assert told.remarks == ["9,000,000 readings are in the tables."]


def test_it_is_not_complete_while_no_statement_is_about_an_origin() -> None:
    told = tell(COMPLETE._replace(explained=0, unstated=1))
    assert (told.kind, told.headline) == ("open", "100 % of 3,412,000 messages that are known of")
    assert told.remarks[-1].startswith("No statement is about 1 of 3 origins and epochs: nothing tells")


def test_one_message_of_millions_that_is_missing_is_seen_in_the_percentage() -> None:
    told = tell(COMPLETE._replace(missing=1, explained=0, unexplained=1))
    assert (told.kind, told.headline) == ("missing", "99.99997 % of 3,412,001 messages, 1 gap unexplained")
    assert told.remarks[0] == "1 message is missing."


def test_messages_with_the_identity_of_another_one_keep_it_from_being_complete() -> None:
    told = tell(COMPLETE._replace(conflicts=2, explained=0))
    assert (told.kind, told.headline) == ("missing", "99.99994 % of 3,412,002 messages, 2 conflicts")
    assert told.remarks[0].startswith("2 messages have the identity of another message, and so no readings")


def test_nothing_is_not_complete() -> None:
    assert tell(COMPLETE._replace(arrived=0, origins=0)).kind == "open"


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (1, 1, "100 %"),
        (0, 7, "0.0 %"),
        (1, 3, "33.3 %"),
        (9_999, 10_000, "99.99 %"),
        (10**18 - 1, 10**18, "more than 99.999999 %"),
    ],
)
def test_percentage_is_rounded_down(part: int, whole: int, text: str) -> None:
    assert percent(part, whole) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.35, "350 ms"),
        (0.9999, "1.0 s"),
        (12.34, "12.3 s"),
        (59.96, "1 min"),
        (185, "3 min 5 s"),
        (3_600, "1 h"),
        (11_045, "3 h 4 min"),
        (187_200, "2 d 4 h"),
        (-90, "\N{MINUS SIGN}1 min 30 s"),
    ],
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert written(seconds) == text
