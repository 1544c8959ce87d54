"""What receipts say of messages, against a plain set of numbers."""

import random

from uplink.queue.settled import SAID_MOST, SettledMessages
from wire.receipt import LandedUpTo, Receipt, Settled


def receipt(batch: int, *epochs: Settled, tables: str = "00000001") -> Receipt:
    return Receipt(tables, batch, list(epochs))


def test_the_numbers_up_to_the_high_water_and_in_the_runs_are_settled_and_no_others() -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    for _ in range(200):
        settled = {number for number in range(1, 60) if chance.random() < 0.7}
        high = next(number for number in range(61) if number + 1 not in settled)
        runs: list[tuple[int, int]] = []
        for number in sorted(one for one in settled if one > high):
            if runs and runs[-1][1] == number - 1:
                runs[-1] = runs[-1][0], number
            else:
                runs.append((number, number))
        known = SettledMessages()
        assert known.note("device", receipt(1, Settled(7, high, runs))) == ""
        for seq in range(1, 65):
            last = known.up_to("device", 7, seq)
            assert {*range(seq, last + 1)} <= settled, f"seed {seed}"
            assert last + 1 not in settled, f"seed {seed}"
        assert known.up_to("device", 8, 1) == known.up_to("other", 7, 1) == 0


def test_a_receipt_takes_the_place_of_the_one_before_with_all_its_epochs() -> None:
    known = SettledMessages()
    known.note("device", receipt(1, Settled(7, 9, [])))
    known.note("device", receipt(2, Settled(8, 3, [])))
    assert (known.up_to("device", 7, 1), known.up_to("device", 8, 1)) == (0, 3)


def test_a_receipt_of_an_earlier_batch_of_the_same_tables_says_nothing() -> None:
    known = SettledMessages()
    known.note("device", receipt(5, Settled(7, 9, [])))
    assert "batch 4" in known.note("device", receipt(4, Settled(7, 20, [])))
    assert known.up_to("device", 7, 1) == 9
    assert known.note("device", receipt(1, Settled(7, 2, []), tables="00000002")) == "", "tables that were made anew"
    assert known.up_to("device", 7, 1) == 2


def test_receipts_of_former_tables_settle_nothing_once_the_present_ones_are_known() -> None:
    known = SettledMessages()
    known.note("quiet", receipt(5, Settled(7, 9, [])))
    known.note("device", receipt(1, Settled(7, 3, []), tables="00000002"))
    assert (known.up_to("quiet", 7, 1), known.up_to("device", 7, 1)) == (9, 3)
    assert known.note_tables(LandedUpTo("00000002", 1, 0)) == ""
    assert (known.up_to("quiet", 7, 1), known.up_to("device", 7, 1)) == (0, 3)


def test_receipts_that_say_much_of_many_origins_take_bounded_memory_and_others_settle_what_they_did() -> None:
    known, most = SettledMessages(), range(90)
    for number in range(SAID_MOST // (1 + len(most))):
        assert known.note(f"origin-{number}", receipt(1, *(Settled(epoch, 9, []) for epoch in most))) == ""
    assert "room" in known.note("device", receipt(1, *(Settled(epoch, 9, []) for epoch in most)))
    assert (known.up_to("origin-0", 7, 1), known.up_to("device", 7, 1)) == (9, 0)
    assert known.note("origin-0", receipt(2, Settled(7, 10, []))) == "", "it takes the place of what was there"
    assert known.note("device", receipt(2, Settled(7, 10, []))) == ""
    assert (known.up_to("origin-0", 7, 1), known.up_to("device", 7, 1)) == (10, 10)


def test_an_earlier_receipt_for_all_that_was_landed_says_nothing() -> None:
    known = SettledMessages()
    assert known.note_tables(LandedUpTo("00000001", 5, 500)) == ""
    assert "batch 4" in known.note_tables(LandedUpTo("00000001", 4, 400))
    assert known.note_tables(LandedUpTo("00000002", 1, 100)) == "", "tables that were made anew"
    assert known.note_tables(LandedUpTo("00000002", 1, 200)) == "", "of the same batch: more is in by now"
