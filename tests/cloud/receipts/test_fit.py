"""As much of a receipt as fits: the newest epochs, HIGH, the highest runs; nothing that the whole one does not say."""

from hypothesis import given
from hypothesis import strategies as st

from cloud.receipts.receipts import fit
from wire.receipt import RECEIPT_BYTES_MAX, RUNS_MOST, SIGNATURE_ROOM, Receipt, Settled, encode_receipt

TOP = 2**63 - 1


def runs(count: int, first: int = 10, step: int = 10) -> list[tuple[int, int]]:
    return [(first + step * place, first + step * place + 5) for place in range(count)]


def receipt(*epochs: Settled) -> Receipt:
    return Receipt("3f0c9a1e", 1207, list(epochs))


@st.composite
def whole(draw: st.DrawFn) -> Receipt:
    epochs = []
    for epoch in range(draw(st.integers(1, 60))):
        high = draw(st.sampled_from((0, 3, TOP - 10**6)))
        step = draw(st.sampled_from((8, 10**16)))
        count = draw(st.sampled_from((0, 1, 5, 40))) if high < TOP - 10**6 else 40
        epochs.append(Settled(epoch, high, runs(count, high + 2, step if high < 10 else 8)))
    return receipt(*epochs)


@given(whole(), st.sampled_from((RECEIPT_BYTES_MAX, RECEIPT_BYTES_MAX - SIGNATURE_ROOM)))
def test_it_fits_and_claims_nothing_more(made: Receipt, room: int) -> None:
    short = fit(made, room)
    assert len(encode_receipt(short)) <= room
    assert sum(len(one.runs) for one in short.epochs) <= RUNS_MOST
    for one, of in zip(short.epochs, made.epochs, strict=False):  # the newest epochs, in their order
        assert (one.epoch, one.high) == (of.epoch, of.high)
        assert one.runs == of.runs[len(of.runs) - len(one.runs) :]


def test_what_fits_stays_as_it_is() -> None:
    made = receipt(Settled(1, 5, runs(20)), Settled(2, 0, runs(12)), *(Settled(n, 9, []) for n in range(3, 20)))
    assert fit(made, RECEIPT_BYTES_MAX) == made


def test_of_too_many_runs_the_highest_of_the_newest_epoch_stay() -> None:
    short = fit(receipt(Settled(1, 5, runs(30)), Settled(2, 5, runs(30))), RECEIPT_BYTES_MAX)
    assert short.epochs == [Settled(1, 5, runs(30)), Settled(2, 5, runs(30)[-2:])]


def test_high_of_eight_epochs_goes_before_runs_and_runs_go_before_high_of_older_epochs() -> None:
    made = receipt(*(Settled(n, TOP - 10**6, runs(40, TOP - 10**6 + 2, 8)) for n in range(40)))
    short = fit(made, RECEIPT_BYTES_MAX - SIGNATURE_ROOM)
    assert len(short.epochs) == 8
    assert [len(one.runs) > 10 for one in short.epochs] == [True] + 7 * [False]
    assert len(fit(receipt(*(Settled(n, 5, []) for n in range(99))), len("hf1 3f0c9a1e 1207 ") + 50 * 11).epochs) == 50
