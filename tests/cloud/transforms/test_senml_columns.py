"""Packs by columns, beside the same packs one by one."""

import json
import random

from hypothesis import example, given
from hypothesis import strategies as st

from cloud.transforms.decode import decode_payloads
from cloud.transforms.senml_columns import resolve_plain
from tests.cloud.messages import payload

KIND = decode_payloads([None], ["t"], [None]).field("records").type

numbers = st.one_of(
    st.integers(-5, 5), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([1.76e9, 2**28, 3e11, 2**53])
)
names = st.sampled_from(["load", "a:load", "roof/b:", ":", "", "_x", "ü", "a/b/c"])
texts = st.sampled_from(["Cel", "", "ü", '"'])
records = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("n", "bn"), names),
        **dict.fromkeys(("t", "bt", "v", "bv", "s", "bs"), numbers),
        **dict.fromkeys(("u", "bu", "vs"), texts),
        "vb": st.booleans(),
        "vd": st.sampled_from(["AQ", "?"]),
        "bver": st.sampled_from([10, 11]),
        **dict.fromkeys(("boot", "up"), st.one_of(st.integers(-1, 9), st.sampled_from([2**53, 1.5, "1", None]))),
        "x_": st.just(1),
    },
)
plain = st.fixed_dictionaries(
    {"n": st.sampled_from(["load", "a:b", "m/n"]), "v": numbers},
    optional={"t": numbers, "u": texts},
)
first = st.fixed_dictionaries(
    {"bn": st.sampled_from(["garage:", "roof/1:"]), "n": st.just("load"), "v": numbers},
    optional={"bt": numbers, "bu": texts, "boot": st.integers(0, 9), "up": st.integers(0, 10**9)},
)
packs = st.one_of(
    st.lists(records, max_size=4), st.tuples(first, plain, plain), st.tuples(first), st.just({}), st.just(3)
).map(lambda pack: json.dumps(pack).encode())


@given(st.lists(st.one_of(packs, st.binary(max_size=4), st.none()), max_size=6))
@example([payload("garage", 1), b"[]", None, payload("roof", 2)])
@example([])
def test_plain_packs_have_the_records_that_they_have_one_by_one(payloads: list[bytes | None]) -> None:
    compare(payloads)


def test_many_packs_have_their_own_records(seed: int) -> None:
    """More than become columns at once, with others among them."""
    choose = random.Random(seed)
    some = [
        b"[]",
        b"",
        None,
        b'[{"n":"load","vs":"on"},{"n":"door","vb":true}]',
        b'[{"n":"a:b","v":1},{"bn":"c:","v":2}]',
    ]
    compare([choose.choice([payload("garage", seq), payload(f"roof/{seq}", seq), *some]) for seq in range(3000)])


def compare(payloads: list[bytes | None]) -> None:
    """Compares the records of payloads with the records of each payload alone."""
    by_columns = resolve_plain(payloads, KIND).to_pylist()
    columns = payloads, ["t"] * len(payloads), ["application/senml+json"] * len(payloads)
    one_by_one = decode_payloads(*columns).field("records").to_pylist()
    assert len(by_columns) == len(payloads)
    for found, expected in zip(by_columns, one_by_one, strict=True):
        assert found is None or found == expected


def test_packs_of_our_devices_are_plain() -> None:
    assert resolve_plain([payload("garage", 1), payload("roof", 2)], KIND).null_count == 0
