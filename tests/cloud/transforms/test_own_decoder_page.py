"""The functions of the how-to decode what the page says."""

import re
import struct
from pathlib import Path

import pytest

from cloud import find_decoders
from cloud.transforms.own_decoders import OwnDecoder
from cloud.transforms.record import Message, Record
from tests.cloud.transforms.decoding import decode_one, values
from tools.cli.paths import source_root

PAGE = (source_root() / "docs/how-to/own-decoder.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def own(tmp_path: Path) -> tuple[OwnDecoder, ...]:
    files = [tmp_path / f"{number}.py" for number in range(len(PROGRAMS))]
    for file, program in zip(files, PROGRAMS, strict=True):
        file.write_text(program)
    return find_decoders(files)


def test_functions_of_the_page_decode(own: tuple[OwnDecoder, ...]) -> None:
    (record,) = decode_one("meters/7/raw", bytes([1, 0, 215]), own=own)
    assert record == Record(device="7", metric="temperature", unit="Cel", value=21.5)
    assert values(decode_one("plant/3/log", "1,x", own=own)) == {"column_1": 1.0, "column_2": "x"}
    assert values(decode_one("scales/2", struct.pack("<f", 12.5), own=own)) == {"mass": 12.5}


def test_the_page_names_every_field_and_no_other() -> None:
    message, _, record = PAGE.partition("| field of `Record`")
    for text, kind in ((message.partition("| field of `Message`")[2], Message), (record, Record)):
        cells = re.findall(r"^\|([^|]*)\|", text.partition("\n\n")[0], re.MULTILINE)
        assert [name for cell in cells for name in re.findall(r"`(\w+)`", cell)] == list(kind.__annotations__)
