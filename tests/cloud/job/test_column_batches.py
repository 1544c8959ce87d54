from cloud.job.run import Report
from cloud.landing.batch import to_table
from cloud.landing.file import Row
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row
from wire.bulk.batch_encoder import ColumnBatchEncoder
from wire.bulk.column_batch import CONTENT_TYPE, decode_batch
from wire.bulk.property_block import encode_contents
from wire.properties import CONTENT_TYPE as CONTENT_TYPE_PROPERTY


def batch_of(rows: list[Row]) -> bytes:
    encoder = ColumnBatchEncoder()
    for one in rows:
        assert one.received_ms is not None and one.gateway is not None
        block = encode_contents({CONTENT_TYPE_PROPERTY: one.content_type})
        identity = (one.origin, one.epoch, one.seq)
        encoder.add(one.topic, one.payload, 1, False, block, *identity, one.received_ms, one.gateway)
    return encoder.encode()


def test_messages_of_a_batch_are_duplicates_of_the_same_messages_and_a_corrupt_batch_is_quarantined(lake: Lake) -> None:
    one_by_one = [row(seq, origin) for seq in range(1, 21) for origin in ("garage", "roof")]
    payload = batch_of(one_by_one)
    batch = to_table(decode_batch(payload), one_by_one[0].landed_ms, 1, "lander-1")
    corrupt = row(1, "lander-1", payload[:-1])._replace(content_type=CONTENT_TYPE, received_ms=None, gateway=None)
    numbered = row(9, "centre", b"")._replace(content_type=CONTENT_TYPE)
    land(lake.landing, one_by_one[:10], [batch, numbered, corrupt])
    assert lake.ingest() == Report(1, 2, rows_in=52, new=41, duplicates=10, quarantined=1, readings=80)
    readings = lake.rows("readings")
    assert sorted((one["origin"], one["seq"], one["metric"], one["value"]) for one in readings) == sorted(
        (one.origin, one.seq, metric, one.seq + 0.5) for one in one_by_one for metric in ("load", "memory")
    )
    assert {one["gateway"] for one in lake.rows("bronze_messages") if one["origin"] == "roof"} == {"gw-1"}
    (aside,) = lake.rows("quarantine")
    assert (aside["kind"], aside["payload"]) == ("undecodable", payload[:-1])
    assert aside["reason"].startswith("a column batch that cannot be decoded: the zstd frame is cut off")
