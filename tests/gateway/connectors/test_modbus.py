"""Requests, frames and values of Modbus, beside pymodbus, and what is not taken for an answer."""

import contextlib
import random
import re
import struct
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from pymodbus.framer import FramerAscii, FramerRTU, FramerSocket, FramerType
from pymodbus.pdu import DecodePDU

from gateway.config.connectors import ValueConfig
from gateway.connectors.modbus.blocks import blocks_of, probe_of
from gateway.connectors.modbus.command import Refused, write_of
from gateway.connectors.modbus.frame import FRAMINGS, Framing, RtuFraming, TcpFraming, crc_of
from gateway.connectors.modbus.request import Read, UnitException, Write, check_answer
from gateway.connectors.modbus.value import in_order, on_the_line, reading_of, registers_for
from gateway.connectors.reading import Reading, Unreadable

PEERS = {"modbus_rtu": FramerRTU, "modbus_ascii": FramerAscii, "modbus_tcp": FramerSocket}
REQUESTS = [
    Read("coil", 19, 37),
    Read("discrete", 196, 22),
    Read("holding", 107, 3),
    Read("input", 0, 125),
    Write("coil", 19, (1, 0, 1, 1, 0, 0, 1, 1, 1, 0)),
    Write("holding", 1, (10, 0x102)),
    Write("coil", 172, (1,), is_single=True),
    Write("holding", 1, (3,), is_single=True),
]
ANY_READ = st.builds(Read, st.sampled_from(["holding", "input"]), st.integers(0, 60_000), st.integers(1, 125))


def answer_pdu(request: Read | Write, dice: random.Random) -> bytes:
    if isinstance(request, Write):
        return request.answer_head
    return request.answer_head + dice.randbytes(request.answer_size - 2)


def framed(framing: Framing, kind: str, unit: int, pdu: bytes, transaction: int = 1) -> bytes:
    if kind == "modbus_rtu":
        body = bytes((unit,)) + pdu
        return body + crc_of(body).to_bytes(2, "little")
    if kind == "modbus_ascii":
        body = bytes((unit,)) + pdu
        return b":" + (body + bytes((-sum(body) & 0xFF,))).hex().upper().encode() + b"\r\n"
    return transaction.to_bytes(2, "big") + b"\0\0" + (len(pdu) + 1).to_bytes(2, "big") + bytes((unit,)) + pdu


@pytest.mark.parametrize("kind", PEERS)
@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_another_implementation_reads_our_requests(kind: str, request_: Read | Write) -> None:
    framer = PEERS[kind](DecodePDU(True))
    frame = FRAMINGS[kind]().encode(17, request_)
    used, found = framer.handleFrame(frame, 0, 0)
    assert used == len(frame) and found is not None
    assert (found.dev_id, found.function_code, found.address) == (17, request_.function, request_.address)
    if isinstance(request_, Read):
        assert found.count == request_.count
    elif request_.table == "coil":
        assert tuple(map(int, found.bits[: len(request_.values)])) == request_.values
    else:
        assert tuple(found.registers) == request_.values


def test_the_checksum_is_that_of_the_specification() -> None:
    assert crc_of(bytes.fromhex("0207")).to_bytes(2, "little") == bytes.fromhex("4112")
    assert FramerType.RTU.value == "rtu"


@pytest.mark.parametrize("kind", PEERS)
@given(request=st.sampled_from(REQUESTS), seed=st.integers(0, 2**32), cuts=st.lists(st.integers(1, 9), max_size=80))
def test_an_answer_is_found_however_its_bytes_are_cut(kind: str, request: Read, seed: int, cuts: list[int]) -> None:
    framing = FRAMINGS[kind]()
    framing.encode(5, request)
    pdu = answer_pdu(request, random.Random(seed))
    frame = framed(framing, kind, 5, pdu)
    answers, start, found = framing.answers(5, request), 0, None
    for cut in cuts:
        assert found is None
        found = answers.feed(frame[start : start + cut])
        start += cut
        if start >= len(frame):
            break
    found = answers.feed(frame[start:]) if start < len(frame) else found
    assert found == pdu


@pytest.mark.parametrize("kind", PEERS)
@given(data=st.lists(st.binary(max_size=40), max_size=30), request=st.sampled_from(REQUESTS))
def test_any_bytes_are_looked_at_and_refused(kind: str, data: list[bytes], request: Read) -> None:
    framing = FRAMINGS[kind]()
    framing.encode(5, request)
    answers = framing.answers(5, request)
    with contextlib.suppress(Unreadable):
        for piece in data:
            assert answers.feed(piece) is None
        assert str(answers.ended())


def test_noise_another_units_answer_and_an_answer_to_another_request_are_passed_over() -> None:
    framing, request, dice = RtuFraming(), Read("holding", 0, 2), random.Random(1)
    right = answer_pdu(request, dice)
    other = framed(framing, "modbus_rtu", 6, answer_pdu(request, dice))
    late = framed(framing, "modbus_rtu", 5, answer_pdu(Read("holding", 0, 3), dice))
    answers = framing.answers(5, request)
    assert answers.feed(b"\0\xff" + other + late + framed(framing, "modbus_rtu", 5, right)) == right
    assert not answers.rest


def test_a_late_answer_over_tcp_is_passed_over_by_its_transaction() -> None:
    framing, request = TcpFraming(), Read("holding", 0, 1)
    framing.encode(5, request)
    framing.encode(5, request)
    answers = framing.answers(5, request)
    assert answers.feed(framed(framing, "modbus_tcp", 5, b"\3\2\0\1", transaction=1)) is None
    assert answers.feed(framed(framing, "modbus_tcp", 5, b"\3\2\0\2", transaction=2)) == b"\3\2\0\2"


@pytest.mark.parametrize("code", range(1, 12))
@pytest.mark.parametrize("kind", PEERS)
def test_an_exception_is_told_with_its_number(kind: str, code: int) -> None:
    framing, request = FRAMINGS[kind](), Read("input", 0, 9)
    framing.encode(1, request)
    found = framing.answers(1, request).feed(framed(framing, kind, 1, bytes((0x84, code))))
    assert found == bytes((0x84, code))
    with pytest.raises(UnitException, match=f"exception {code}: ") as raised:
        check_answer(request, found)
    assert raised.value.code == code


def test_an_answer_that_is_cut_short_is_no_answer() -> None:
    framing, request = RtuFraming(), Read("holding", 0, 4)
    whole = framed(framing, "modbus_rtu", 1, answer_pdu(request, random.Random(2)))
    for size in range(len(whole)):
        answers = framing.answers(1, request)
        assert answers.feed(whole[:size]) is None
        assert "answer" in str(answers.ended())


@pytest.mark.parametrize(
    ("kind", "form", "number"),
    [
        ("int16", ">h", -2),
        ("uint16", ">H", 65_534),
        ("int32", ">i", -70_000),
        ("uint32", ">I", 4_000_000_000),
        ("float32", ">f", 230.5),
        ("int64", ">q", -(2**62) - 1),
        ("uint64", ">Q", 2**63 + 5),
        ("float64", ">d", -1.25e-300),
    ],
)
def test_numbers_of_each_size_are_read_and_written_in_every_order_of_bytes(kind: str, form: str, number: float) -> None:
    data = struct.pack(form, number)
    orders = ["".join(one) for one in permutations("ABCDEFGH"[: len(data)])]
    for order in orders if len(orders) <= 24 else random.Random(1).sample(orders, 200):
        letters = dict(zip("ABCDEFGH", data, strict=False))
        line = bytes(letters[letter] for letter in order)
        assert in_order(line, order) == data and on_the_line(data, order) == line
        config = ValueConfig("x", 0, type=kind, order=order)  # type: ignore[arg-type]
        registers = [int.from_bytes(line[at : at + 2], "big") for at in range(0, len(line), 2)]
        assert reading_of(config, registers).value == number
        assert list(registers_for(config, number)) == registers


def test_a_factor_gives_as_many_digits_as_it_has() -> None:
    assert reading_of(ValueConfig("u", 0, scale=0.1, unit="V"), [2301]) == Reading("u", 230.1, "V")
    assert reading_of(ValueConfig("t", 0, type="int16", scale=0.01, offset=-40), [0xFFFF]).value == -40.01


@given(
    st.sampled_from(["int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]),
    st.sampled_from([0.001, 0.1, 1.0, 2.5, 10.0, -1.0]),
    st.sampled_from([0.0, -40.0, 0.5]),
    st.floats(-30_000, 30_000) | st.integers(-30_000, 30_000),
)
def test_a_value_that_is_set_is_read_back_within_half_a_step(
    kind: str, scale: float, offset: float, wanted: float
) -> None:
    config = ValueConfig("x", 0, type=kind, scale=scale, offset=offset, write=True, min=-30_000, max=30_000)  # type: ignore[arg-type]
    try:
        registers = write_of(config, wanted).values
    except Refused:
        reject()
    found = reading_of(config, list(registers)).value
    assert not isinstance(found, str)
    fraction = {"float32": 2**-23, "float64": 2**-52}.get(kind)  # of a number, between two that can be written
    step = abs(scale) if fraction is None else abs(wanted - offset) * fraction
    assert abs(found - wanted) <= step / 2 * (1 + 1e-6) + 1e-9
    assert config.min is not None and config.max is not None
    assert kind.startswith("float") or config.min <= found <= config.max


@pytest.mark.parametrize(
    ("keys", "value", "error"),
    [
        ({"min": -5, "max": 5}, 6, "6: expected -5 to 5"),
        ({"min": 0, "max": 10, "scale": 4.0}, 10, "8"),  # of two steps that are equally near, the even one
        ({"min": 0, "max": 9, "scale": 2.0}, 9, "8"),
        ({"min": 0, "max": 7, "scale": 2.0}, 7, "8: expected 0 to 7"),
        ({"min": -1e9, "max": 1e9}, 40_000, "40000: does not fit int16"),
        ({"min": 0, "max": 100, "invalid": 7}, 7, "7: the unit has no value"),
        ({"min": 0, "max": 100}, "7", "'7': expected a finite number"),
        ({"min": 0, "max": 100}, float("nan"), "nan: expected"),
        ({"min": 0, "max": 100}, False, "False: expected a finite number"),
    ],
)
def test_bounds_hold_before_and_after_the_rounding(keys: dict[str, Any], value: Any, error: str) -> None:
    config = ValueConfig("x", 0, type="int16", write=True, **keys)
    if error.isdigit():
        assert reading_of(config, list(write_of(config, value).values)).value == int(error)
        return
    with pytest.raises(Refused, match=re.escape(error)):
        write_of(config, value)


def test_whole_numbers_of_64_bits_are_set_exactly() -> None:
    config = ValueConfig("x", 0, type="uint64", write=True, min=0, max=2.0**64)
    assert write_of(config, 2**64 - 1).values == (0xFFFF,) * 4


def test_fields_of_bits_and_bits_are_read() -> None:
    assert reading_of(ValueConfig("state", 0, bit=4, bits=3), [0b0101_0000]).value == 5
    assert reading_of(ValueConfig("alarm", 0, type="bool", bit=15), [0x8000]).value is True
    assert reading_of(ValueConfig("pump", 0, "coil", type="bool"), [0]).value is False


@pytest.mark.parametrize(("registers", "text"), [((0x4142, 0x4300), "ABC"), ((0x4142, 0x2020), "AB"), ((0, 0), "")])
def test_a_text_ends_at_nul_or_blanks(registers: tuple[int, ...], text: str) -> None:
    assert reading_of(ValueConfig("s", 0, type="string", length=2), list(registers)).value == text


@pytest.mark.parametrize(
    ("config", "registers", "why"),
    [
        (ValueConfig("x", 0, type="float32"), [0x7FC0, 0], "nan: not a finite number"),
        (ValueConfig("x", 0, type="float32"), [0x7F80, 0], "inf: not a finite number"),
        (ValueConfig("x", 0, type="float64", scale=1e300), [0x7FE0, 0, 0, 0], "not a finite number"),
        (ValueConfig("x", 0, invalid=32768), [0x8000], "no value"),
        (ValueConfig("x", 0, type="string", length=1), [0xFF01], "ff01: no text"),
    ],
)
def test_what_is_no_value_is_told_and_harms_no_other_value(config: ValueConfig, registers: list[int], why: str) -> None:
    (block,) = blocks_of([config, ValueConfig("y", len(registers))], gap=0, most=125)
    wrong, right = block.readings([*registers, 7])
    assert (wrong.name, right) == ("x.error", Reading("y", 7))
    assert why in str(wrong.value)


VALUES = st.lists(
    st.builds(
        ValueConfig,
        st.just("v"),
        st.integers(0, 400),
        table=st.sampled_from(["holding", "input"]),
        type=st.sampled_from(["uint16", "uint32", "float64"]),
    ),
    min_size=1,
    max_size=30,
)


@given(VALUES, st.integers(0, 20), st.integers(4, 125))
def test_blocks_have_each_value_once_and_are_no_larger_than_they_may_be(
    values: list[ValueConfig], gap: int, most: int
) -> None:
    blocks = blocks_of(values, gap=gap, most=most)
    assert sorted(map(id, values)) == sorted(id(value) for block in blocks for value in block.values)
    for block in blocks:
        memory = {address: address for address in range(1000)}
        found = [memory[block.request.address + number] for number in range(block.request.count)]
        assert block.request.count <= most
        assert all(block.registers_of(value, found)[0] == value.address for value in block.values)
    probe = probe_of(blocks)
    assert all((one.request.function, one.request.answer_size) != (probe.function, probe.answer_size) for one in blocks)


def test_neighbours_are_read_together_and_a_hole_only_where_it_may_be() -> None:
    values = [ValueConfig("a", 0, type="float32"), ValueConfig("b", 2), ValueConfig("c", 5)]
    assert [block.request.count for block in blocks_of(values, gap=0, most=125)] == [3, 1]
    assert [block.request.count for block in blocks_of(values, gap=2, most=125)] == [6]
    assert [block.request.count for block in blocks_of(values, gap=2, most=4)] == [3, 1]
