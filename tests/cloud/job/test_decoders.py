"""Decoders in the job: one's own, and Sparkplug B over batches."""

import random
from pathlib import Path

import pytest

from cloud import BadDecoder, ingest
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row
from tests.cloud.transforms.sparkplug_encoder import T0_MS, metric, number_field, payload

OWN = """
from cloud import Record, decoder

@decoder("meters/#")
def meter(message):
    yield Record(metric="count", value=int.from_bytes(message.payload, "big"))
"""


def test_file_with_a_decoder_decodes_in_the_job(lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "meter.py"
    file.write_text(OWN)
    metered = row(1, content=b"\x01\x02")._replace(topic="meters/7", content_type=None)
    land(lake.landing, [metered, row(2, content=b"21.5")._replace(topic="a/b", content_type=None)])
    report = ingest(lake.spark, lake.landing, lake.folder, decoders=[file])
    assert (report.new, report.quarantined, report.readings) == (2, 0, 2)
    found = {(one["seq"], one["device"], one["metric"], one["value"]) for one in lake.rows("readings")}
    assert found == {(1, "garage", "count", 258.0), (2, "a", "b", 21.5)}


def test_own_decoder_comes_before_senml_by_columns(lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "meter.py"
    file.write_text(OWN)
    land(lake.landing, [row(1)._replace(topic="meters/7"), row(2)])
    ingest(lake.spark, lake.landing, lake.folder, decoders=[file])
    found = [(one["seq"], one["metric"]) for one in lake.rows("readings")]
    assert [metric for seq, metric in found if seq == 1] == ["count"]
    assert "count" not in {metric for seq, metric in found if seq == 2}


def test_birth_with_an_identity_that_came_before_explains_nothing(lake: Lake) -> None:
    genuine, other = (payload(metric(name, alias=0, datatype=3), timestamp=T0_MS) for name in ("a", "b"))
    data = payload(metric(None, number_field(10, 7), alias=0), timestamp=T0_MS + 1)
    kinds = [("NBIRTH", genuine), ("NBIRTH", other), ("NDATA", data)]
    sent = [
        row(seq, content=content)._replace(topic=f"spBv1.0/g/{kind}/n", content_type=None)
        for seq, (kind, content) in zip((1, 1, 2), kinds, strict=True)
    ]
    land(lake.landing, sent[:1])
    lake.ingest()
    land(lake.landing, sent[1:], boot=2)
    assert lake.ingest().quarantined == 1
    assert [(one["metric"], one["value"]) for one in lake.rows("readings")] == [("a", 7.0)]


def test_file_that_does_not_prove_is_set_aside_beside_messages_of_sparkplug(lake: Lake) -> None:
    birth = payload(metric("a", alias=0, datatype=3), timestamp=T0_MS)
    data = payload(metric(None, number_field(10, 7), alias=0), timestamp=T0_MS + 1)
    sent = [
        row(seq, content=content)._replace(topic=f"spBv1.0/g/{kind}/n", content_type=None)
        for seq, (kind, content) in enumerate((("NBIRTH", birth), ("NDATA", data), ("NDATA", data)), start=1)
    ]
    *_, broken = land(lake.landing, sent[:2], sent[2:])
    path = lake.landing / broken.file
    path.write_bytes(bytes(path.stat().st_size))
    report = lake.ingest()
    assert [item.file for item in report.set_aside] == [broken.file]
    assert [(one["metric"], one["value"]) for one in lake.rows("readings")] == [("a", 7.0)]


def test_file_that_cannot_be_used_ends_the_job_before_it_begins(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(BadDecoder, match="FileNotFoundError"):
        ingest(lake.spark, lake.landing, lake.folder, decoders=[tmp_path / "missing.py"])
    assert not lake.folder.exists()


def test_births_of_earlier_batches_and_of_the_same_batch_explain_aliases(lake: Lake, seed: int) -> None:
    choose = random.Random(seed)
    lives = [choose.sample(["a", "b", "c"], 3) for _ in range(3)]
    births = [
        payload(*[metric(name, alias=at, datatype=3) for at, name in enumerate(names)], timestamp=T0_MS + 100 * life)
        for life, names in enumerate(lives)
    ]
    steps = [(life, at) for life in range(3) for at in range(3)]
    data = [
        payload(metric(None, number_field(10, 10 * life + at), alias=at), timestamp=T0_MS + 100 * life + 1 + at)
        for life, at in steps
    ]
    rows = [("spBv1.0/g/NBIRTH/n", one) for one in births] + [("spBv1.0/g/NDATA/n", one) for one in data]
    numbered = [
        row(seq, content=content)._replace(topic=topic, content_type=None)
        for seq, (topic, content) in enumerate(rows, start=1)
    ]
    # Births land with or before the messages that they explain; these land in any order, over several batches.
    lately = choose.sample(numbered[4:], len(numbered[4:]))
    for batch in ([*numbered[:3], numbered[3]], lately[:4], lately[4:]):
        land(lake.landing, batch, boot=batch[0].seq)
        assert lake.ingest().quarantined == 0
    found: dict[str, set[float]] = {"a": set(), "b": set(), "c": set()}
    for one in lake.rows("readings"):
        found[one["metric"]].add(one["value"])
    expected: dict[str, set[float]] = {"a": set(), "b": set(), "c": set()}
    for life, at in steps:
        expected[lives[life][at]].add(10.0 * life + at)
    assert found == expected
