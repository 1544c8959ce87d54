"""When keys change."""

from gateway.multicast.keys import OVERLAP_S, GroupKeys


def test_the_next_key_is_handed_out_before_the_time_is_over_and_used_then() -> None:
    keys = GroupKeys(60, 1000.0)
    first = keys.key
    assert not keys.is_next_due(1060 - OVERLAP_S - 0.1)
    assert keys.is_next_due(1060 - OVERLAP_S)
    keys.begin_next(1060 - OVERLAP_S)
    number, key = keys.hand_out_next()
    assert (number, key != first, keys.key) == (2, True, first)
    assert not keys.is_next_due(1059)
    assert not keys.is_change_due(1059.9)
    assert keys.is_change_due(1060)
    keys.change(1060)
    assert (keys.number, keys.key, keys.has_readers) == (2, key, True)
    assert not keys.is_change_due(1200)
    assert keys.is_next_due(1120 - OVERLAP_S)


def test_a_key_that_no_receiver_got_has_no_readers() -> None:
    keys = GroupKeys(60, 0.0)
    assert (keys.number, keys.has_readers) == (1, False)
    assert keys.hand_out() == [(1, keys.key)]
    assert (keys.number, keys.has_readers) == (1, True)
    keys.begin_next(55)
    keys.change(60)
    assert (keys.number, keys.has_readers) == (2, False)


def test_a_receiver_that_comes_between_gets_both_keys() -> None:
    keys = GroupKeys(60, 0.0)
    keys.begin_next(1)
    handed = keys.hand_out()
    assert [number for number, _ in handed] == [1, 2]
    keys.change(1 + OVERLAP_S)
    assert (keys.key, keys.has_readers) == (handed[1][1], True)


def test_a_next_key_that_is_replaced_again_and_again_is_used_in_time() -> None:
    keys = GroupKeys(3600, 0.0)
    for now_s in range(1, 100):
        if keys.is_change_due(now_s):
            break
        keys.begin_next(now_s)
    assert now_s == 1 + 2 * OVERLAP_S


def test_each_epoch_and_each_key_is_another() -> None:
    one, other = GroupKeys(60, 0.0), GroupKeys(60, 0.0)
    assert one.epoch != other.epoch
    assert one.key != other.key
    one.begin_next(1)
    before = one.hand_out_next()
    one.begin_next(2)
    assert one.hand_out_next()[0] == before[0]
    assert one.hand_out_next()[1] != before[1]
