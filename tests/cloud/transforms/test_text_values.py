"""Numbers, words and CSV lines."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.transforms.record import Message
from cloud.transforms.text_values import decode_csv, decode_value
from tests.cloud.transforms.decoding import decode_one, devices, problem_of, times_us, values

CELLS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8).map(str.strip)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53))
def test_every_number_is_decoded_as_it_prints(number: float) -> None:
    assert decode_value(Message("a/b", None, f" {number}\r\n".encode()))[0].value == number


@pytest.mark.parametrize("payload", ["+1", "-.5", "1.", "1E3", "007"])
def test_forms_of_numbers_are_decoded(payload: str) -> None:
    assert values(decode_one("a/b", payload)) == {"b": float(payload)}


@pytest.mark.parametrize(
    ("payload", "value"),
    [("ON", True), ("off", False), ("true", True), ("False", False), ("Online", True), ("offline", False)],
)
def test_words_of_two_states_are_booleans(payload: str, value: bool) -> None:
    assert values(decode_one("a/b", payload)) == {"b": value}


@pytest.mark.parametrize("payload", ["inf", "1_000", "1e999", "٣", "1,2,3", "0x10", "1 2", "hi", "+", ".", "e3"])
def test_other_text_is_refused_unless_the_content_type_says_that_it_is_text(payload: str) -> None:
    assert problem_of("a/b", payload).startswith("it is neither JSON nor a number nor ON or OFF")
    assert values(decode_one("a/b", payload, "text/plain; charset=utf-8")) == {"b": payload}


def test_time_grows_with_the_length_of_a_text_that_begins_like_a_number_and_no_faster() -> None:
    digits = "1" * 1_000_000  # with the square of the length this would take hours
    assert values(decode_one("a/b", digits + "x", "text/plain")) == {"b": digits + "x"}
    assert problem_of("a/b", digits + ".5x1").startswith("it is neither JSON nor a number nor ON or OFF")


def test_unit_comes_from_the_content_type() -> None:
    (record,) = decode_one("a/b", "21.5", 'Text/Plain; charset=utf-8; Unit="Cel"')
    assert (record.value, record.unit) == (21.5, "Cel")


def test_csv_lines_take_names_from_a_header_row_and_times_from_a_column() -> None:
    lines = 'time,temp,door,note\r\n1773500966,21.5,ON,\r\n1773500967,,OFF,"a, b"\r\n'
    records = decode_one("plant/3", lines, "text/csv")
    assert [(record.metric, record.time_us) for record in records] == [
        ("temp", 1_773_500_966_000_000),
        ("door", 1_773_500_966_000_000),
        ("door", 1_773_500_967_000_000),
        ("note", 1_773_500_967_000_000),
    ]
    assert (records[0].value, records[1].value_bool, records[3].value_string) == (21.5, True, "a, b")
    assert devices(records) == {"plant/3"}


def test_csv_lines_without_a_header_row_take_names_from_their_places() -> None:
    records = decode_one("plant/3", "1,x\n2,y", "text/csv")
    assert [(record.metric, record.value or record.value_string) for record in records] == [
        ("column_1", 1.0),
        ("column_2", "x"),
        ("column_1", 2.0),
        ("column_2", "y"),
    ]
    assert times_us(records) == {None}


def test_content_type_says_whether_there_is_a_header_row() -> None:
    assert values(decode_one("t", "a,b", "text/csv; header=absent")) == {"column_1": "a", "column_2": "b"}
    assert values(decode_one("t", "1,2\n3,4", "text/csv; header=present")) == {"1": 3.0, "2": 4.0}


@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=5))
def test_every_cell_that_is_not_blank_is_a_record(rows: list[list[str]]) -> None:
    written = io.StringIO()
    csv.writer(written).writerows([["a", "b", "c"], *rows])
    if not any(map(any, rows)):
        assert decode_one("t", written.getvalue(), "text/csv") == []
    else:
        records = decode_csv(Message("t", "text/csv", written.getvalue().encode()))
        expected = [name for row in rows for name, cell in zip("abc", row, strict=True) if cell]
        assert [record.metric for record in records] == expected


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("a,b\n1,2,3", "a row has 3 cells, and the first has 2"),
        ("a,a\n1,2", "two columns have the same name"),
        ('a,b\n1,"2', "it is not CSV: unexpected end of data"),
        ("a\n" + "x" * 200_000, "it is not CSV: field larger than field limit"),
        ("," * 100_000, "it has more than 100000 columns"),
        ("x" * 5_000 + "\n" + "1\n" * 30_000, "bytes, far more than its size"),
    ],
)
def test_other_lines_are_refused_with_a_reason(payload: str, reason: str) -> None:
    assert reason in problem_of("t", payload, "text/csv")
