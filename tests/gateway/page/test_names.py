"""Names of devices and topics come from strangers: none of them reaches the page as more than text."""

import random
import re
import unicodedata
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gateway.counters import RouteState
from gateway.page.names import SHOWN_MAX, name, shown, words
from gateway.page.sections import SECTIONS, device_table
from gateway.store.tables import drops
from tests.gateway.page.serving import ask, drop, observer_of, page_of, paged
from tests.gateway.support import running

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "'\"><svg/onload=alert(1)>",
    "</bdi></td></table></body>",
    "]]><!--",
    "&lt;b&gt;",
    "javascript:alert(1)",
    "\u202egpj.exe",
    "\u2066left\u2069\u200f\u061c",
    "a\0b\x1b[31m\x7f\x85",
    "line\nbreak\rtab\t\u2028\u2029",
    "e" + "\u0301" * 500,
    "\ud800",
    "\ufeff\u200b\U000e0041",
    "${gateway} $$ {0} %s",
    "x" * 100_000,
    "\U0001f4a5" * 1000,
    "مرحبا",
)
TAGS = (
    "html head meta title link style body h1 h2 p span section dl div dt dd table thead tbody tr th td bdi ul li a svg "
    "rect path text figure figcaption details summary script code"
)
ATTRIBUTES = (
    "lang charset name content rel href id class role aria-label data-version x y width height rx d viewbox "
    "text-anchor preserveaspectratio"
)


class Read(HTMLParser):
    """The tags and attributes of a page that are not among ours, and its texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.foreign: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.foreign += [tag] if tag not in TAGS.split() else []
        self.foreign += [f"{tag} {key}={value!r}" for key, value in attrs if key not in ATTRIBUTES.split()]
        self.foreign += [
            f"{tag} {value!r}" for key, value in attrs if key == "href" and not re.match("[/#]", value or "")
        ]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.foreign.append(f"comment {data!r}")


def hostile_names(count: int, seed: int) -> list[str]:
    """Names that are made of pieces of attacks, and of any characters."""
    chance = random.Random(seed)
    found = list(HOSTILE)
    while len(found) < count:
        pieces = [chance.choice(HOSTILE)[:40], "".join(chr(chance.randrange(0x110000)) for _ in range(8))]
        chance.shuffle(pieces)
        found.append("".join(pieces) + chance.choice("<>&\"'`=\0\u202e"))
    return found


def is_dangerous(one: str) -> bool:
    """Whether a character changes how what stands behind it is read."""
    return unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") and one != "\n"


def test_ten_thousand_hostile_names_are_escaped(seed: int) -> None:
    unescaped = []
    for hostile in hostile_names(10_000, seed):
        html = name(hostile)
        text = unescape(html.removeprefix("<bdi>").removesuffix("</bdi>"))
        is_text_alone = not re.search(r"[<>\"']", html[5:-6]) and not any(map(is_dangerous, text))
        if not is_text_alone or len(text) > SHOWN_MAX + 1:
            unescaped.append(hostile)
    assert unescaped == []


async def test_page_with_ten_thousand_hostile_devices_routes_and_ranges_has_our_tags_alone(
    tmp_path: Path, seed: int
) -> None:
    names = [one.encode("utf-8", "replace").decode() for one in hostile_names(10_000, seed)]
    async with running(tmp_path) as broker:
        for one in names:
            broker.services.shared.devices.note_connected(one, None, "192.0.2.1", 5)
        for one in names[:20]:
            broker.overview.routes.append(RouteState(one, last_error=one))
        for one in HOSTILE[:16]:
            text = one.encode("utf-8", "replace").decode()[:250]
            drop(broker, drops.EVICTED, f"session/{text}", text, range(1, 4))
        await broker.log.submit([])
        observer = observer_of(broker)
        html = device_table(await observer.devices(0.0))
        observer.tick(1e9, 1.0)
        await observer.read_missing(1.0)
        snapshot = await observer.look(1e9)
        parts = {name: section(snapshot) for name, (section, _) in SECTIONS.items()}
        async with paged(broker, observer) as page:
            _, whole = await ask(page)
            _, second = await ask(page, "/devices?from=200")
    for part in (html, *parts.values(), whole, second):
        read = Read(part)
        assert read.foreign == []
        if part is not whole and part is not second:  # these have our script and style too
            assert not any(map(is_dangerous, "".join(read.texts)))
    assert len(Read(html).texts) > 10_000
    assert "alert(1)" in parts["missing"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("garage", "garage"),
        ("<b>", "&lt;b&gt;"),
        ("a\0b", "a\ufffdb"),
        ("\u202eabc", "\ufffdabc"),
        ("é" + "\u0301" * 5, "é\u0301\u0301"),
        ("x" * 60, "x" * 48 + "…"),
        ("مرحبا", "مرحبا"),
    ],
)
def test_name_is_shown_as_a_person_can_read_it(text: str, expected: str) -> None:
    assert shown(text) == expected
    assert name(text) == f"<bdi>{expected}</bdi>"


def test_sentence_may_be_longer_than_a_name() -> None:
    assert words("<" * 300).count("&lt;") == 300
    assert words("x" * 500) == f"<bdi>{'x' * 400}…</bdi>"


async def test_hostile_name_in_the_gateways_own_name_stays_text(tmp_path: Path) -> None:
    async with page_of(tmp_path) as (_, page):
        head, _ = await ask(page)
    assert "script-src 'sha256-" in head and "unsafe" not in head
