"""What connectors store is what the tables' decoders read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.transforms import senml
from cloud.transforms.record import Record
from gateway.connectors.reading import EXACT_MAX, Reading, Value
from gateway.connectors.senml import encode

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9.]{0,20}", fullmatch=True)
VALUES = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-EXACT_MAX, EXACT_MAX)
    | st.booleans()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
)
READINGS = st.lists(st.builds(Reading, NAMES, VALUES, st.sampled_from(["", "V", "Cel"])), min_size=1, max_size=30)


def value_in(record: Record) -> Value | None:
    for value in (record.value, record.value_bool, record.value_string):
        if value is not None:
            return value
    return None


@pytest.mark.parametrize("form", ["json", "cbor"])
@given(readings=READINGS)
def test_the_tables_decoders_read_each_pack(form: str, readings: list[Reading]) -> None:
    payload = encode("meter-1", 1_795_839_844_985, readings, form)  # type: ignore[arg-type]
    found = senml.resolve(payload) if form == "json" else senml.resolve_cbor(payload)
    assert [(one.device, one.metric, value_in(one)) for one in found] == [
        ("meter-1", reading.name, reading.value) for reading in readings
    ]


def test_a_clock_that_was_not_set_gives_no_time() -> None:
    assert b'"bt"' not in encode("meter", 5_000, [Reading("a", 1)], "json")
    assert b'"bt":1795839844.985' in encode("meter", 1_795_839_844_985, [Reading("a", 1)], "json")
