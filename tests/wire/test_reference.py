"""docs/reference/wire.md shows what the code does."""

import re
from pathlib import Path

from wire.identity import decode_identity, decode_received
from wire.link import Link
from wire.link.frames import INFO, encode_frame

PAGE = (Path(__file__).parents[2] / "docs/reference/wire.md").read_text()
SHOWN = [bytes.fromhex(line) for line in re.findall(r"^00 [0-9a-f ]+ 00$", PAGE, re.MULTILINE)]


def test_shown_frames_are_what_the_link_sends() -> None:
    link = Link(7)
    link.open(0)
    assert [link.data_to_send(), encode_frame(INFO, 5, 0, 4096, b"hi")] == SHOWN


def test_shown_identity_and_provenance_can_be_read() -> None:
    shown = dict(re.findall(r"^\| `(hf-\w+)` \|.*`([^`]+)` \|$", PAGE, re.MULTILINE))
    assert decode_identity(shown["hf-id"]) == ("greenhouse-1", 0x1F, 42)
    assert decode_received(shown["hf-received"]) == (1_767_225_600_000, "barn")
