"""Decoders of one's own, from files and from installed packages."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cloud.transforms.decode import decode_payloads
from cloud.transforms.decoders import Outcome, decode_messages
from cloud.transforms.own_decoders import BadDecoder, Mark, OwnDecoder, find_decoders
from cloud.transforms.record import Message
from tests.cloud.transforms.decoding import decode_one, values

IMPORTS = "from cloud import Message, Record, Undecodable, decoder\n"
METER = (
    IMPORTS
    + '''
@decoder("meters/+/raw")
def meter(message: Message):
    """Two bytes: tenths of a degree."""
    if len(message.payload) != 2:
        raise Undecodable(f"{len(message.payload)} bytes instead of 2")
    tenths = int.from_bytes(message.payload, "big")
    yield Record(device=message.topic.split("/")[1], metric="temperature", unit="Cel", value=tenths / 10)
'''
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "meter.py"
    path.write_text(METER)
    return path


def own(tmp_path: Path, source: str) -> tuple[OwnDecoder, ...]:
    path = tmp_path / "own.py"
    path.write_text(IMPORTS + source)
    return find_decoders([path])


def outcomes(own_decoders: Sequence[OwnDecoder], *payloads: bytes, topic: str = "t") -> list[Outcome]:
    return decode_messages([Message(topic, None, payload) for payload in payloads], own_decoders)


def test_function_of_a_file_decodes_the_topics_of_its_filter_and_no_others(file: Path) -> None:
    found = find_decoders([file])
    (record,) = decode_one("meters/7/raw", b"\0\xd7", own=found)
    assert (record.device, record.metric, record.unit, record.value) == ("7", "temperature", "Cel", 21.5)
    assert values(decode_one("meters/7/other", "1", own=found)) == {"other": 1.0}
    assert outcomes(found, b"1", topic="meters/7/raw") == ["decoder meter: 1 bytes instead of 2"]


def test_content_type_and_order_choose_among_functions(tmp_path: Path) -> None:
    found = own(
        tmp_path,
        '@decoder("#", content_type="Application/X-Meter")\ndef a(message): return [Record(metric="a", value=1)]\n'
        '@decoder("t/#")\ndef b(message): return [Record(metric="b", value=1)]\n'
        '@decoder("t/1")\ndef c(message): return [Record(metric="c", value=1)]\n',
    )
    assert values(decode_one("t/1", "1", "application/x-meter; v=2", own=found)) == {"a": 1.0}
    assert values(decode_one("t/1", "1", "text/plain", own=found)) == {"b": 1.0}
    assert values(decode_one("u/1", "1", own=found)) == {"1": 1.0}


@given(st.text(max_size=12), st.none() | st.text(max_size=12))
@example("a", "X")
def test_any_topic_and_content_type_find_a_decoder(topic: str, content_type: str | None) -> None:
    (outcome,) = decode_messages([Message(topic, content_type, b"1")], OF_ANY_TOPIC)
    assert outcome


def test_a_built_in_decoder_can_be_used_where_no_content_type_comes(tmp_path: Path) -> None:
    source = '@decoder("log/+")\ndef lines(m): return decode_csv(m._replace(content_type="text/csv; header=absent"))\n'
    found = own(tmp_path, "from cloud import decode_csv\n" + source)
    assert values(decode_one("log/1", "a,2", own=found)) == {"column_1": "a", "column_2": 2.0}


def test_function_of_whole_batches_gets_them_and_one_bad_message_spoils_no_other(tmp_path: Path) -> None:
    found = own(
        tmp_path,
        "sizes = []\n"
        '@decoder("#", whole_batches=True)\n'
        "def many(messages):\n"
        "    sizes.append(len(messages))\n"
        '    return [[Record(metric=f"x{len(messages)}", value=float(one.payload))] for one in messages]\n',
    )
    together = outcomes(found, b"1", b"2", b"3")
    assert [values(one) if isinstance(one, list) else one for one in together] == [
        {"x3": 1.0},
        {"x3": 2.0},
        {"x3": 3.0},
    ]
    first, second, third = outcomes(found, b"1", b"no", b"3")
    assert isinstance(first, list) and isinstance(third, list)
    assert (values(first), values(third)) == ({"x1": 1.0}, {"x1": 3.0})
    assert second == "decoder many: ValueError: could not convert string to float: b'no'"


OF_ANY_TOPIC = [
    OwnDecoder(
        "one", "one.py", f"{IMPORTS}one = lambda m: [Record(metric='a', value=1)]", Mark(topic_filter, "x", False)
    )
    for topic_filter in ("a/+/b", "+/#", "$SYS/#", "/")
]
FAULTS = {
    "raise KeyError('x')": "decoder f: KeyError: 'x'",
    "raise SystemExit(3)": "decoder f: SystemExit: 3",
    "raise MemoryError": "decoder f: MemoryError: ",
    "return f(message)": "decoder f: RecursionError",
    "return None": "decoder f: TypeError",
    "return [1]": "decoder f: it gave a int, not a Record",
    "return [Record()]": "decoder f: a record has no metric",
    "return [Record(metric='a')]": "decoder f: a record of 'a' has 0 values",
    "return [Record(metric='a', value=1, value_bool=True)]": "decoder f: a record of 'a' has 2 values",
    "return [Record(metric='a', value='1')]": "decoder f: ValidationError: Expected `float",
    "return [Record(metric='a', value=float('nan'))]": "decoder f: a number of 'a' is not finite",
    "return [Record(metric='a', value=10**400)]": "decoder f: ",
    "return [Record(metric='a', value_string='\\ud800')]": "decoder f: UnicodeEncodeError",
    "return [Record(metric='a', value=1, time_us=10**18)]": "decoder f: time 1000000000000000000 µs is outside",
    "return [Record(metric='a', value=1, boot_id=2**63)]": "decoder f: ",
    "return (Record(metric='a', value=1) for _ in iter(int, 1))": "decoder f: it resolves to more than ",
    "return [Record(metric='a', value_string='x' * 10**6)]": "decoder f: it resolves to more than 65600 bytes",
}


@pytest.mark.parametrize("whole_batches", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_any_fault_of_a_function_makes_its_message_undecodable(tmp_path: Path, fault: str, whole_batches: bool) -> None:
    head = f'@decoder("t", whole_batches={whole_batches})\ndef f(message):\n    '
    body = fault.replace("return ", "return [", 1) + "]" if whole_batches and "return" in fault else fault
    found = own(tmp_path, head + body)
    assert outcomes(found, b"\0")[0][: len(FAULTS[fault])] == FAULTS[fault]


def test_answer_for_another_number_of_messages_is_refused(tmp_path: Path) -> None:
    found = own(tmp_path, '@decoder("t", whole_batches=True)\ndef f(messages): return []\n')
    assert outcomes(found, b"1") == ["decoder f: 0 lists for 1 messages"]


def test_installed_package_offers_a_decoder_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "holdfast_meters_example.py").write_text(METER)
    installed = tmp_path / "holdfast_meters_example-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: holdfast-meters-example\nVersion: 1.0\n")
    points = installed / "entry_points.txt"
    points.write_text("[holdfast.decoders]\nmeters = holdfast_meters_example:meter\n")
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = find_decoders()
    assert (found.name, found.where) == ("meters", "holdfast_meters_example:meter")
    assert values(decode_one("meters/7/raw", b"\0\xd7", own=[found])) == {"temperature": 21.5}
    points.write_text("[holdfast.decoders]\nmeters = holdfast_meters_example:nothing\n")
    with pytest.raises(BadDecoder, match="entry point meters cannot be loaded: AttributeError"):
        find_decoders()
    points.write_text("[holdfast.decoders]\nmeters = holdfast_meters_example:Record\n")
    with pytest.raises(BadDecoder, match="entry point meters: holdfast_meters_example:Record is not marked"):
        find_decoders()
    sys.modules.pop("holdfast_meters_example")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("1 +", "cannot be loaded: SyntaxError"),
        ("raise SystemExit(3)", "cannot be loaded: SystemExit: 3"),
        ("import no_such_module", "cannot be loaded: ModuleNotFoundError"),
        (IMPORTS + "@decoder('a/#/b')\ndef f(m): ...", "cannot be loaded: ValueError: 'a/#/b' is no topic filter"),
        (IMPORTS, "has no function that is marked with @decoder"),
    ],
)
def test_file_without_a_decoder_is_refused_with_the_reason(tmp_path: Path, source: str, reason: str) -> None:
    path = tmp_path / "own.py"
    path.write_text(source)
    with pytest.raises(BadDecoder, match=r"own\.py") as caught:
        find_decoders([path])
    assert reason in str(caught.value)
    with pytest.raises(BadDecoder, match="FileNotFoundError"):
        find_decoders([tmp_path / "missing.py"])


def test_file_reaches_the_workers_of_spark_though_they_do_not_have_it(file: Path, spark: SparkSession) -> None:
    found = find_decoders([file])
    file.unlink()

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            decoded = decode_payloads([b"\0\xd7", b"1"], ["meters/7/raw"] * 2, [None] * 2, own=found)
            yield pa.RecordBatch.from_pydict({"decoded": [json.dumps(one, default=str) for one in decoded.to_pylist()]})

    rows = spark.range(0, 1, 1, 1).mapInArrow(decode, "decoded STRING").collect()
    first, second = (json.loads(row.decoded) for row in rows)
    assert [(record["device"], record["value"]) for record in first["records"]] == [("7", 21.5)]
    assert second["problem"] == "decoder meter: 1 bytes instead of 2"
