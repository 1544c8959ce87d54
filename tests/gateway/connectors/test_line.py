"""Lines of text become values, by rules, and no line makes the gateway slow."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.connectors import LineRule
from gateway.connectors.line import FILLED_MAX, LineReader, value_of
from gateway.connectors.reading import Reading, number_of

CLIMATE = LineRule(pattern=r"^T=(?P<temperature>\S+) H=(?P<humidity>\d+)$", units={"temperature": "Cel"})


def reader(*rules: LineRule, topic: str = "telemetry/{device}") -> LineReader:
    return LineReader("scale", topic, rules)


def test_without_a_rule_a_line_is_one_value() -> None:
    assert reader().read(b"12.50 ").readings == [Reading("line", 12.5)]
    assert reader().read(b"ST,GS, 12.5kg").readings == [Reading("line", "ST,GS, 12.5kg")]


def test_the_groups_of_an_expression_are_values_with_units() -> None:
    found = reader(CLIMATE).read(b"T=-3.25 H=40")
    assert (found.device, found.topic, found.fits) == ("scale", "telemetry/scale", True)
    assert found.readings == [Reading("temperature", -3.25, "Cel"), Reading("humidity", 40)]


def test_the_first_rule_that_fits_counts_and_a_line_that_none_fits_is_stored_unread() -> None:
    rules = CLIMATE, LineRule(columns=("weight", "", "state"), texts=("state",))
    assert reader(*rules).read(b'12.5, kg ,"007"').readings == [Reading("weight", 12.5), Reading("state", "007")]
    found = reader(*rules).read(b"1,2")
    assert (found.readings, found.fits) == ([Reading("unread", "1,2")], False)


def test_a_column_names_the_device_and_adds_no_level_to_the_topic() -> None:
    rule = LineRule(columns=("id", "value"), device="probe-{id}")
    found = reader(rule).read(b"a/b+#$,5")
    assert (found.device, found.topic) == ("probe-a_b___", "telemetry/probe-a_b___")
    assert found.readings == [Reading("value", 5)]
    assert len(reader(rule).read(b"a" * 900 + b",5").device) == FILLED_MAX + len("probe-")


@pytest.mark.parametrize("text", ["nan", "inf", "-infinity", "1_000", "1e999", "0x10", "", "-", "1e5 m"])
def test_what_is_no_finite_number_stays_text(text: str) -> None:
    assert number_of(text) is None


@given(st.text())
def test_any_text_is_a_value(text: str) -> None:
    assert isinstance(value_of(text), str | int | float)


@given(st.binary(max_size=300))
def test_any_bytes_are_read(line: bytes) -> None:
    rules = CLIMATE, LineRule(columns=("a", "b"), device="{a}")
    found = reader(*rules).read(line)
    assert not set(found.topic.removeprefix("telemetry/")) & set("/+#$\0")


@pytest.mark.parametrize(
    "pattern", [r"^(?P<a>(a+)+)$", r"(?P<a>(a|a)*)b", r"(?P<a>a.*a.*a.*a.*a.*)b", r"(?P<a>(.*)*)x"]
)
def test_no_line_makes_an_expression_slow(pattern: str) -> None:
    hostile = b"a" * 65_536
    one = reader(LineRule(pattern=pattern))
    started = time.process_time()
    one.read(hostile)
    assert time.process_time() - started < 1.0
