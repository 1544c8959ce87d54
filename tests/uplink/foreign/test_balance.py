"""Which receiver a message is for."""

from uplink.foreign.balance import Receivers


def test_without_a_mode_a_message_is_for_all() -> None:
    assert Receivers("none", ["b", "a"]).choose() == ""


def test_round_robin_takes_one_after_the_other_and_passes_over_those_that_are_not_there() -> None:
    receivers = Receivers("round_robin", ["b", "a", "c"])
    assert [receivers.choose() for _ in range(4)] == ["b", "a", "c", "b"]
    receivers.note_load("a", None)
    assert {receivers.choose() for _ in range(4)} == {"b", "c"}
    receivers.note_load("a", 0)
    assert {receivers.choose() for _ in range(3)} == {"a", "b", "c"}


def test_weighted_takes_the_one_with_the_fewest_messages_that_it_has_not_acknowledged() -> None:
    receivers = Receivers("weighted", ["a", "b"])
    receivers.note_load("a", 3)
    receivers.note_load("b", 1)
    assert [receivers.choose() for _ in range(4)] == ["b", "b", "a", "b"]


def test_sorted_takes_the_lowest_name_that_is_there() -> None:
    receivers = Receivers("sorted", ["b", "a"])
    assert receivers.choose() == "a"
    receivers.note_load("a", None)
    assert receivers.choose() == "b"
    receivers.note_load("b", None)
    assert receivers.choose() == "a"
