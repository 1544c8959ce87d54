"""The page of decoders shows what the decoders do."""

import json
import re

import pytest

from cloud.transforms import record
from cloud.transforms.sender.forms import DEPTH_MAX
from cloud.transforms.sparkplug import TEMPLATES_MAX
from host.cbor import DEPTH_MAX as CBOR_DEPTH_MAX
from host.cbor import ITEMS_MAX
from tests.cloud.transforms.decoding import decode_one, values
from tools.cli.paths import source_root

PAGE = (source_root() / "docs/reference/decoders.md").read_text()
EXAMPLES = re.findall(r"^\| `(.+?)` \| `(.+)` \| (`.+`) \|$", PAGE.partition("\n## ")[0], re.MULTILINE)


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) > 10


@pytest.mark.parametrize(("topic", "payload", "readings"), EXAMPLES, ids=[topic for topic, *_ in EXAMPLES])
def test_example_of_the_page_gives_its_readings(topic: str, payload: str, readings: str) -> None:
    shown = [re.findall(r"`(.+?)`", reading) for reading in readings.split(";")]
    records = decode_one(topic, payload)
    assert [[one.device, one.metric] for one in records] == [[device, metric] for device, metric, _ in shown]
    assert values(records) == {metric: json.loads(value) for _, metric, value in shown}


def test_the_page_has_the_bounds() -> None:
    assert f"| payload | {record.PAYLOAD_MAX // 1024**2} MiB |" in PAGE
    assert f"| readings of a message | {record.RECORDS_MAX:,} |" in PAGE
    assert f"{record.TEXT_SLACK // 1024} KiB + {record.TEXT_FACTOR} · n bytes |" in PAGE
    assert f"| items of CBOR, with those in others | {ITEMS_MAX:,} |" in PAGE
    depths = DEPTH_MAX, CBOR_DEPTH_MAX, TEMPLATES_MAX
    assert f"| nesting of JSON, CBOR, templates | {', '.join(map(str, depths))} |" in PAGE
