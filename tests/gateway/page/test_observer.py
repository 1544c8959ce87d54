"""What the page says of a gateway: only what is shown to be fine is called fine."""

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.config.schema import StoreConfig
from gateway.counters import LinkStatus, RouteAbout, RouteState
from gateway.network.link import LINK_PROPERTY, LinkSettings, encode_link
from gateway.page.board import Board
from gateway.page.observer import Observer
from gateway.page.sections import SECTIONS
from gateway.page.snapshot import Snapshot
from gateway.page.standing import Standing
from gateway.store.tables import drops
from tests.gateway.page.serving import add_device, drop, observer_of
from tests.gateway.page.test_standing import LINK
from tests.gateway.support import connected, running


class Dialled:
    """A link that this gateway dials, with a status."""

    def __init__(self, status: LinkStatus) -> None:
        self.name = status.name
        self._status = status

    def status(self) -> LinkStatus:
        return self._status


def sections(snapshot: Snapshot) -> dict[str, str]:
    return {name: section(snapshot) for name, (section, _) in SECTIONS.items()}


async def look(observer: Observer, now_s: float = 0.0) -> tuple[Snapshot, dict[str, str]]:
    """A snapshot after two ticks, and its sections."""
    now_s = now_s or time.time()
    for second in (0, 1):
        observer.tick(now_s - 1 + second, 100.0 + second)
    await observer.read_missing(101.0)
    snapshot = await observer.look(now_s)
    return snapshot, sections(snapshot)


def headline(parts: dict[str, str]) -> str:
    return parts["verdict"].partition('"headline">')[2].partition("</p>")[0]


async def test_gateway_of_which_all_is_known_to_be_fine_is_called_well(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        observer = observer_of(broker)
        add_device(broker, observer, "garage", [60.0] * 4, 10.0)
        broker.overview.routes.append(RouteState("central", connected=True, acknowledged_ms=int(time.time() * 1000)))
        _, parts = await look(observer)
        assert headline(parts) == "✓ All is well at this gateway"
        assert "1 device in their rhythm, 1 way on, nothing missing today" in parts["verdict"]


@pytest.mark.parametrize("unknown", ["device", "route", "missing", "rates"])
async def test_gateway_of_which_something_is_not_known_is_not_called_well(tmp_path: Path, unknown: str) -> None:
    async with running(tmp_path) as broker:
        observer = observer_of(broker)
        add_device(broker, observer, "garage", [60.0] * (1 if unknown == "device" else 4), 10.0)
        acknowledged_ms = 0 if unknown == "route" else int(time.time() * 1000)
        broker.overview.routes.append(RouteState("central", connected=True, acknowledged_ms=acknowledged_ms))
        snapshot, _ = await look(observer)
        if unknown == "missing":
            snapshot = snapshot._replace(missing=None)
        elif unknown == "rates":
            snapshot = snapshot._replace(per_s={})
        assert headline(sections(snapshot)) == "? Nothing is known to be wrong"


@pytest.mark.parametrize("what", ["silent", "missing"])
async def test_silent_device_or_a_range_of_today_is_unusual(tmp_path: Path, what: str) -> None:
    async with running(tmp_path) as broker:
        observer = observer_of(broker)
        add_device(broker, observer, "garage", [60.0] * 4, 1000.0 if what == "silent" else 10.0)
        if what == "missing":
            drop(broker, drops.OVERSIZE, "session/wall", "garage", range(1, 3))
            await broker.log.submit([])
        _, parts = await look(observer)
        assert headline(parts) == "! Something is unusual"
        _, tomorrow = await look(observer_of(broker), time.time() + 2 * 86_400)
        assert headline(tomorrow) != "! Something is unusual"
        assert ("oversize" in tomorrow["missing"]) == (what == "missing")


async def test_what_a_rule_of_a_route_leaves_out_is_not_missing(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        drop(broker, drops.SELECTED, "route/central", "garage", range(1, 3))
        await broker.log.submit([])
        _, parts = await look(observer_of(broker))
        assert parts["missing"] == "<p>No range of a message is noted as missing in the store.</p>"


async def test_range_that_is_written_later_is_found_soon(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        observer = observer_of(broker)
        _, parts = await look(observer)
        assert "No range" in parts["missing"]
        drop(broker, drops.OVERSIZE, "session/wall", "garage", range(1, 3))
        observer.tick(time.time(), 102.0)
        await observer.read_missing(102.0)  # it is not in the store yet
        await broker.log.submit([])
        await observer.read_missing(104.0)
        assert "oversize" in sections(await observer.look(time.time()))["missing"]


async def test_rates_are_those_of_the_last_seconds(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        observer, client = observer_of(broker), await connected(broker)
        observer.tick(1e9, 100.0)
        assert (await observer.look(1e9)).per_s == {}
        for _ in range(20):
            await client.publish("a")
        observer.tick(1e9 + 5, 105.0)
        snapshot = await observer.look(1e9 + 5)
        assert snapshot.per_s["received"] == snapshot.per_s["stored"] == 4.0
        for second in range(6, 30):
            observer.tick(1e9 + second, 100.0 + second)
        assert (await observer.look(1e9 + 30)).per_s["received"] == 0.0


async def test_room_ends_at_the_pace_of_the_last_hour(tmp_path: Path) -> None:
    async with running(tmp_path, store=StoreConfig(str(tmp_path), max_messages=1_000_000)) as broker:
        observer = observer_of(broker)
        snapshot, parts = await look(observer)
        assert snapshot.stores[0].ends_s is None
        assert "? not known yet" in parts["room"] and "the oldest messages are dropped then" in parts["room"]
        now_s = 1e9 // 300 * 300
        for second in range(0, 1800, 60):
            observer.history.begin(now_s + second)
            observer.history.note_last("left ", 5e9)
            observer.history.note_last("left messages ", 1_000_000 + 100 * (1800 - second))
        snapshot = await observer.look(now_s + 1799)
        assert snapshot.stores[0].ends_s == pytest.approx(1_000_000 / 100, rel=0.1)
        assert "in 2 h 4" in sections(snapshot)["room"]


async def test_what_routes_keep_until_a_receipt_is_shown_and_nothing_is_said_without_one(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        broker.overview.routes += [RouteState("archive", unproven_messages=7)]
        _, parts = await look(observer_of(broker))
        assert "No route waits for receipts" in parts["receipts"]
        _, parts = await look(observer_of(broker, "archive"))
        assert "no receipt says so" in parts["receipts"]
        broker.overview.routes[0] = RouteState(
            "archive", unproven_messages=1234, unproven_bytes=98_000, unproven_ms=10**12, unproven_sent=83
        )
        broker.overview.routes[0].landed_ms = 10**12 + 60_000
        _, parts = await look(observer_of(broker, "archive"))
        shown = re.sub("<[^>]+>", " ", parts["receipts"]).split()
        assert "receipts: the tables have all up to 2001-09-09 01:47:40" in parts["way"]
        assert "2001-09-09 01:47:40 1,234 98.0 kB 2001-09-09 01:46:40 83" in " ".join(shown)


async def test_neighbouring_gateway_is_a_link_and_no_device(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("allow * neighbour *\nallow * publish,subscribe #\n")
    link = encode_link(LinkSettings("site-a"))
    async with running(tmp_path / "store", acl=str(tmp_path / "rules")) as broker:
        await connected(broker, "site-a-to-m", user_properties=[(LINK_PROPERTY, link)])
        await connected(broker, "garage")
        observer = observer_of(broker)
        snapshot, _ = await look(observer)
        assert [one.name for one in snapshot.devices] == ["garage"]
        assert [one.name for one in await observer.devices(time.time())] == ["garage"]
        assert [(hop.kind, hop.peer, hop.standing) for hop in snapshot.hops] == [("link", "site-a", Standing.FINE)]


async def test_route_that_waits_as_configured_is_not_called_broken(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        broker.overview.routes.append(RouteState("night"))
        about = {
            "night": RouteAbout("mqtts://night", "no window is open before 23:00", "no window is open before 23:00")
        }
        devices = broker.services.shared.devices
        observer = Observer("m", "1", broker.overview, devices, lambda: about, time.time())
        snapshot, parts = await look(observer)
        assert snapshot.hops[0].standing is Standing.UNKNOWN
        assert "waits, as configured: no window is open before 23:00" in parts["hops"]
        assert headline(parts) == "? Nothing is known to be wrong"


async def test_sections_that_change_often_are_renewed_seldom(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        observer, board = observer_of(broker), Board()
        snapshot, _ = await look(observer, 1e9)
        board.update(snapshot)
        broker.services.shared.devices.note_connected("garage", None, "192.0.2.1", 5)
        renewed = {}
        for second in range(1, 40):
            before = board.html()
            observer.tick(1e9 + second, 100.0 + second)
            board.update(await observer.look(1e9 + second))
            after = board.html()
            renewed.update({name: second for name in after if after[name] != before[name] and name not in renewed})
        assert renewed["way"] == 1 and renewed["devices"] == 5 and renewed["day"] == 30


async def test_link_that_this_gateway_dials_and_that_is_set_aside_is_not_called_fine(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        now_ms = int(time.time() * 1000)
        broker.overview.routes.append(RouteState("site-b", connected=True, acknowledged_ms=now_ms))
        observer = observer_of(broker)
        snapshot, _ = await look(observer)
        assert [hop.standing for hop in snapshot.hops] == [Standing.FINE]
        dialled = replace(LINK, consumer="route/site-b", is_dialled_here=True, set_aside="it closes a circle")
        broker.stream_links[0].dialled = lambda: [Dialled(dialled)]  # type: ignore[list-item]
        snapshot, _ = await look(observer)
        assert [(hop.kind, hop.standing) for hop in snapshot.hops] == [("route", Standing.ODD)]
        assert "carries no messages: it closes a circle" in snapshot.hops[0].why
