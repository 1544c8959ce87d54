"""Which messages the tables have passed over, by what was settled when."""

from uplink.queue.passage import MARKS_MOST, Mark, Passage, Witness

AFTER_S = 100.0


def witness(position: int) -> Witness:
    return Witness(position, "device", 1, position)


def passage(*moments: tuple[float, int, int]) -> Passage:
    """One with marks: when, the position up to which all was acknowledged, and the newest position."""
    found = Passage(AFTER_S)
    for at_s, acknowledged, head in moments:
        found.note(Mark(at_s, acknowledged, head, witness(acknowledged)))
    return found


def test_nothing_is_proved_while_nothing_is_settled() -> None:
    assert passage((0, 5, 5), (200, 9, 9)).proved_at(lambda _: False) is None


def test_a_settled_message_proves_the_last_moment_before_it_came() -> None:
    one = passage((0, 5, 5), (50, 7, 8), (200, 9, 9), (300, 9, 12))
    assert one.proved_at(lambda found: found.position == 9) == 50  # at 50 s the newest was 8
    assert one.proved_at(lambda found: found.position == 7) == 0


def test_a_message_that_was_there_at_the_first_moment_proves_none() -> None:
    assert passage((0, 5, 5)).proved_at(lambda _: True) is None


def test_only_what_was_acknowledged_by_then_counts() -> None:
    one = passage((0, 5, 5), (50, 7, 8), (200, 9, 9))
    assert [one.acknowledged_at(at_s) for at_s in (-1, 0, 49, 50, 1000)] == [0, 5, 5, 7, 9]


def test_marks_stay_few_and_keep_the_first_and_the_last_moment() -> None:
    one = Passage(AFTER_S)
    for number in range(10 * MARKS_MOST):
        one.note(Mark(number, number, number, witness(number)))
    assert one.proved_at(lambda _: True) == 10 * MARKS_MOST - 2
    assert one.acknowledged_at(MARKS_MOST) <= MARKS_MOST


def test_what_is_settled_needs_no_marks_but_the_last() -> None:
    one = passage((0, 5, 5), (50, 7, 8), (200, 9, 9))
    one.forget(7)
    assert one.acknowledged_at(49) == 0
    assert one.acknowledged_at(50) == 7
