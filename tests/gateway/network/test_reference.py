"""The examples of docs/reference/network.md are what the code makes and takes, and its grammar is the code's."""

import json
import re

import pytest

from gateway.network import announcements, link, topology
from gateway.network.announcements import Announcer, Mark, decode_mark
from gateway.network.interest import LOCAL, Interest
from gateway.network.link import BadLink, FilterSum, LinkSettings, decode_link, encode_link
from gateway.network.zones import Zone
from gateway.sessions.subscribers import NEIGHBOUR_FILTERS_MAX
from tests.gateway.network.hearing import Listener
from tools.cli.paths import source_root

PAGE = (source_root() / "docs/reference/network.md").read_text()
SIDE = Zone().side("A-to-m")


def section(heading: str) -> str:
    """The text below a heading, up to the next one."""
    return re.split(r"\n#+ ", PAGE.split(f"\n{heading}\n", 1)[1], maxsplit=1)[0]


def test_the_sums_of_the_page_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| (.+?) \| `(.+)` \|$", section("### The sum of the filters"), re.MULTILINE))
    filters = [name.strip("`") for name in rows if name.startswith("`")]
    assert len(filters) == 2
    for one in filters:
        assert FilterSum([one]).value == (1, int(rows[f"`{one}`"], 16))
    assert list(FilterSum(filters).value) == json.loads(rows["sum of both"])
    assert list(FilterSum().value) == json.loads(rows["sum of none"])
    shown = re.search(r"^```json\n(\{.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert shown and decode_link(shown[1]).asked == FilterSum(filters).value


def test_the_settings_of_the_page_are_read_with_the_defaults_that_it_says() -> None:
    shown = re.search(r"^```json\n(\{.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert shown
    settings = decode_link(shown[1])
    assert decode_link(encode_link(settings)) == settings
    rows = re.findall(
        r"^\| `(\w+)` \| .* \| (`[^`]+`|\d|required) \|$", section("## CONNECT and CONNACK"), re.MULTILINE
    )
    defaults = {field: json.loads(default.strip("`")) for field, default in rows if default != "required"}
    assert decode_link(json.dumps({"name": "A"} | defaults)) == LinkSettings("A")
    assert {"name", *defaults} == {*LinkSettings.__struct_fields__}


def test_fields_of_later_versions_are_ignored() -> None:
    assert decode_link('{"name":"A","colour":"blue"}') == LinkSettings("A")


@pytest.mark.parametrize("name", ["x" * 128, "é" * 64])
def test_the_longest_names_are_taken_and_longer_ones_are_not(name: str) -> None:
    assert decode_link(encode_link(LinkSettings(name, zone="z" * 128))).name == name
    for settings in (LinkSettings(name + "x"), LinkSettings("A", zone="z" * 129)):
        with pytest.raises(BadLink, match=r"expected a (name of 1 to 128 bytes|zone of 1 to 128 characters)"):
            decode_link(encode_link(settings))


def test_a_neighbour_takes_the_announcements_of_the_page_one_after_the_other() -> None:
    rows = re.findall(r"^\| (nothing|`\w+ \d`) \| `(\w+)` \| (.+) \|$", section("### Announcements"), re.MULTILINE)
    interest = Interest()
    announcer = Announcer(interest, bytes.fromhex("0123456789abcdef"))
    listener = Listener()
    heard = listener.heard
    want, want_no_more = interest.want, interest.want_no_more
    steps = [
        [(want, "telemetry/+/temperature"), (want, "orders/#")],
        [(want, "answers/1"), (want_no_more, "orders/#")],
    ]
    for (mark, shown, texts), step in zip(rows, steps, strict=True):
        assert heard.mark == (Mark() if mark == "nothing" else decode_mark(mark.strip("`")))
        payload = bytes.fromhex(shown)
        announcer.note([change for act, topic_filter in step for change in act(topic_filter, LOCAL)])
        (made,) = announcer.news(SIDE, heard.mark)
        assert made[:17] == payload[:17]  # how zlib packs the texts is its own affair
        assert heard.take(made) == heard.take(payload)
        added, removed, _ = listener.take(payload)
        signs = ("", "") if mark == "nothing" else ("+", "-")
        said = [f"`{signs[0]}{one}`" for one in added] + [f"`{signs[1]}{one}`" for one in removed]
        assert said == texts.split(", ")
    assert heard.mark == announcer.mark() and list(announcer.news(SIDE, heard.mark)) == []
    assert f"| `{heard.mark.encode()}` | – | – |" in PAGE


def test_the_link_states_of_the_page_are_those_of_its_payload() -> None:
    shown = re.search(r"^```json\n(\[\[.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    packed = re.search(r"^The (\d+) bytes .*?^```text\n(\w+)\n```", PAGE, re.MULTILINE | re.DOTALL)
    assert shown and packed
    payload = bytes.fromhex(packed[2])
    states = topology.decode(payload)
    assert len(payload) == int(packed[1])
    whole = [[*one] if len(one) == 6 else [*one, "", "", False] for one in json.loads(shown[1])]
    assert [[one.gateway, one.link, one.serial, one.other, one.zone, one.is_one_hop] for one in states] == whole


def test_the_bounds_of_the_page_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", section("## Limits"), re.MULTILINE))
    mib = 1024 * 1024
    assert rows["filters of a neighbour's session at M"] == f"{NEIGHBOUR_FILTERS_MAX:,}"
    announcement = f"{announcements.FILTERS_MAX:,}; {announcements.TEXTS_MAX // mib} MiB"
    assert rows["filters or changes of M in one announcement; bytes of them before compression"] == announcement
    assert rows["bytes of a payload of an announcement before compression"] == f"{announcements.PIECE_MAX // 1024} KiB"
    assert rows["changes of which M knows what a neighbour has missed"] == f"{announcements.CHANGES_KEPT:,}"
    assert rows["conditions in `hf-link`; characters of `hf-link`"] == f"{link.SELECTS_MAX}; {link.TEXT_MAX:,}"
    assert rows["link states at a gateway"] == f"{topology.STATES_MAX:,}"
    payload = f"{topology.PAYLOAD_STATES_MAX:,}; {topology.PAYLOAD_BYTES_MAX // mib} MiB"
    assert rows["link states in a payload; bytes of it before compression"] == payload
