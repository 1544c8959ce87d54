"""Topic names and filters against the examples of the standard's section 4.7."""

import pytest

from wire.errors import WireError
from wire.topics import check_topic_filter, check_topic_name, matches, parse_shared

MATCHES = [
    ("sport/tennis/player1/#", "sport/tennis/player1"),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking"),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"),
    ("sport/#", "sport"),
    ("#", "sport/tennis"),
    ("#", "/"),
    ("sport/tennis/+", "sport/tennis/player1"),
    ("sport/+", "sport/"),
    ("+/+", "/finance"),
    ("/+", "/finance"),
    ("+/tennis/#", "sport/tennis"),
    ("sport/+/player1", "sport/tennis/player1"),
    ("$SYS/#", "$SYS/monitor/Clients"),
    ("$SYS/monitor/+", "$SYS/monitor/Clients"),
    ("a//b", "a//b"),
    ("a/+/b", "a//b"),
    ("é/+", "é/x"),
]
NO_MATCHES = [
    ("sport/tennis/+", "sport/tennis/player1/ranking"),
    ("sport/+", "sport"),
    ("+", "/finance"),
    ("#", "$SYS/monitor/Clients"),
    ("+/monitor/Clients", "$SYS/monitor/Clients"),
    ("sport/tennis/#", "sport"),
    ("ACCOUNTS", "Accounts"),
    ("/finance", "finance"),
    ("sport/#", "sports/tennis"),
]


@pytest.mark.parametrize(("topic_filter", "name"), MATCHES)
def test_filter_takes_name(topic_filter: str, name: str) -> None:
    check_topic_filter(topic_filter)
    check_topic_name(name)
    assert matches(topic_filter, name)


@pytest.mark.parametrize(("topic_filter", "name"), NO_MATCHES)
def test_filter_leaves_name(topic_filter: str, name: str) -> None:
    assert not matches(topic_filter, name)


@pytest.mark.parametrize(
    "topic_filter",
    [
        "", "a\0", "sport/tennis#", "sport/tennis/#/ranking", "sport+", "+a/b", "a/b+", "##", "a" * 65_536,
        "$share/", "$share/g", "$share/g/", "$share//a", "$share/g+/a", "$share/g#/a", "$share/g/a#", "\ud800",
    ],
)  # fmt: skip
def test_bad_filter_is_refused(topic_filter: str) -> None:
    with pytest.raises(WireError):
        check_topic_filter(topic_filter)


@pytest.mark.parametrize("name", ["", "a\0b", "a/+", "#", "a" * 65_536, "é" * 40_000, "\ud800"])
def test_bad_name_is_refused(name: str) -> None:
    with pytest.raises(WireError):
        check_topic_name(name)


@pytest.mark.parametrize("name", ["/", " ", "a b", "$share", "a" * 65_535])
def test_odd_but_valid_names_pass(name: str) -> None:
    check_topic_name(name)
    check_topic_filter(name)


def test_shared_subscription_is_parted_into_group_and_filter() -> None:
    assert parse_shared("$share/consumers//finance") == ("consumers", "/finance")
    assert parse_shared("$share/g/a/+/#") == ("g", "a/+/#")
    assert parse_shared("a/b") == (None, "a/b")
    check_topic_filter("$share/consumers//finance")
