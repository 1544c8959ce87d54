"""What a gateway shows of its links: their state, what waits and what is wanted, and what its health check says."""

import logging
import time
from pathlib import Path

import pytest

from gateway.counters import LinkStatus
from tests.gateway.support import until
from tests.uplink.network.sites import RULES, Site, message_to
from tools.lab.testing.client import LONG_S
from tools.lab.testing.network_link import NetworkLink


def links_of(site: Site) -> dict[str, LinkStatus]:
    return {one.neighbour: one for one in site.broker.overview.state().links}


async def test_both_ends_of_a_link_show_what_is_wanted_over_it(tmp_path: Path) -> None:
    a, m = Site(tmp_path, "a"), Site(tmp_path, "m")
    a.dial(m.port, "m")
    async with m, a:
        await a.client("one", "readings/#", "orders/1")
        await m.client("two", "alarms")
        await m.wants("readings/#", "orders/1")
        await a.wants("alarms")
        await a.linked()
        await until(lambda: links_of(a)["m"].asked == 2, "both requests are answered")
        dialled, listening = links_of(a)["m"], links_of(m)["a"]
        assert (dialled.name, dialled.is_dialled_here, dialled.server) == ("a-to-m", True, f"mqtt://127.0.0.1:{m.port}")
        assert (listening.name, listening.is_dialled_here) == ("a-to-m", False)
        for here in (dialled, listening):
            assert (here.connected, here.zone, here.hops, here.mode) == (True, "default", "multi", "active-active")
            assert here.since_ms > 0 and here.set_aside == here.problem == ""
        assert (dialled.wanted, dialled.asked) == (1, 2)
        assert (listening.wanted, listening.asked) == (2, 1)
        assert a.broker.overview.notes() == m.broker.overview.notes() == []
        for site in (a, m):
            counters = site.broker.counters
            assert counters.link_states_sent and counters.link_states_received
        assert m.broker.counters.announcements_sent >= a.broker.counters.announcements_received > 0


async def counted(site: Site) -> LinkStatus:
    """Returns the state of the only link, once what waits is counted: it is counted anew when a line has just ended."""
    deadline = time.monotonic() + LONG_S
    while not (shown := (await site.broker.stream_links[0].describe()).links[0]).is_counted:
        assert time.monotonic() < deadline, "what waits is not counted"
    return shown


async def test_what_waits_for_a_neighbour_that_is_away_is_counted_exactly_and_told(tmp_path: Path) -> None:
    a, m = Site(tmp_path, "a"), Site(tmp_path, "m")
    link = NetworkLink("127.0.0.1", m.port)
    await link.open()
    a.dial(link.port, "m")
    async with m, a:
        reader = await a.client("reader", "readings")
        await m.wants("readings")
        device = await m.client("device")
        await device.publish("readings", b"before")
        assert (await message_to(reader)).payload == b"before"
        await link.cut()
        await until(lambda: not links_of(m)["a"].connected and not links_of(a)["m"].connected, "both ends are down")
        for number in range(5):
            await device.publish("readings", b"%d" % number)
            await device.publish("others", b"")
        shown = await counted(m)
        assert (shown.waiting_messages, shown.waiting_bytes) == (5, 5 * len("readings0"))
        assert shown.oldest_ms >= shown.since_ms > 0
        (note,) = m.broker.overview.notes()
        assert note.startswith("link a-to-m to a: down since 20") and note.endswith("the neighbour is not connected")
        (note,) = a.broker.overview.notes()
        assert note.startswith("link a-to-m to m: down since 20")
        assert m.broker.overview.problems() == a.broker.overview.problems() == []
        await link.open()
        assert [int((await message_to(reader)).payload) for _ in range(5)] == list(range(5))
        await until(lambda: not links_of(m)["a"].waiting_messages, "nothing waits any more")
        assert m.broker.overview.notes() == a.broker.overview.notes() == []
    await link.cut()


async def test_a_neighbour_that_never_connected_and_a_refused_login_are_told(tmp_path: Path) -> None:
    a = Site(tmp_path, "a")
    m = Site(tmp_path, "m", rules="allow * publish,subscribe #\n")
    a.dial(m.port, "m")
    m.expect(name="a")
    async with m, a:
        await until(lambda: "no access rule" in links_of(a)["m"].problem, "the refusal is shown")
        (note,) = a.broker.overview.notes()
        assert note.startswith("link a-to-m to m: down: ") and "allow - neighbour a" in note
        assert m.broker.overview.notes() == ["link to a: down: the neighbour has never connected"]


async def test_filters_that_a_neighbour_refuses_are_shown_until_they_are_wanted_no_more(tmp_path: Path) -> None:
    a = Site(tmp_path, "a")
    m = Site(tmp_path, "m", rules="allow * publish,subscribe public/#\nallow - identify *\nallow - neighbour *\n")
    a.dial(m.port, "m")
    async with m, a:
        await a.linked()
        client = await a.client("client", "public/#", "secret/x")
        await until(lambda: links_of(a)["m"].refused, "the refusal has come")
        assert links_of(a)["m"].refused == ("'secret/x' (not authorized (0x87))",)
        assert a.broker.overview.notes() == [
            "link a-to-m to m: the neighbour refuses 'secret/x' (not authorized (0x87))"
        ]
        assert a.broker.overview.problems() == [], "a client's wish is no fault of the gateway"
        await client.unsubscribe("secret/x")
        await until(lambda: not links_of(a)["m"].refused, "nothing is refused any more")
        assert a.broker.overview.notes() == []


async def test_a_configured_filter_that_a_neighbour_refuses_is_a_problem(tmp_path: Path) -> None:
    a = Site(tmp_path, "a")
    m = Site(tmp_path, "m", rules="allow * publish,subscribe public/#\nallow - identify *\nallow - neighbour *\n")
    a.dial(m.port, "m", subscribe=("commands/#",))
    async with m, a:
        await a.linked()
        (problem,) = a.broker.overview.problems()
        assert "'commands/#' (not authorized (0x87))" in problem


async def test_a_link_that_is_set_aside_is_told_with_its_circle(tmp_path: Path) -> None:
    a, b, c = (Site(tmp_path, name) for name in "abc")
    a.dial(b.port, "b")
    b.dial(c.port, "c")
    c.dial(a.port, "a")
    async with a, b, c:
        await until(lambda: links_of(c)["a"].set_aside and links_of(a)["c"].set_aside, "the circle is cut")
        for site, other in ((a, "c"), (c, "a")):
            shown = links_of(site)[other]
            assert shown.connected and shown.set_aside.startswith("c-to-a is set aside, as it closes the circle ")
            assert site.broker.overview.notes() == [f"network: {shown.set_aside}"]
            assert site.broker.overview.problems() == []
        assert b.broker.overview.notes() == []


async def test_a_link_that_comes_up_and_goes_down_is_logged_once_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.network.ends")
    a, m = Site(tmp_path, "a"), Site(tmp_path, "m", rules=RULES)
    a.dial(m.port, "m")
    async with m:
        async with a:
            await a.linked()
            await m.linked(a)
        await until(lambda: not m.broker.network.links.up, "the link is down at m")
    lines = [
        (record.getMessage(), *vars(record)["about"].values())
        for record in caplog.records
        if record.name == "gateway.network.ends"
    ]
    ends = {(neighbour, event) for event, _, neighbour, *_ in lines}
    assert len(lines) == len(ends) == 4
    assert ("link up", "a-to-m", "a", "default", "active-active", 0, 0) in lines
    assert ("link down", "a-to-m", "m", "default", "active-active") in lines


async def test_a_long_list_of_filters_comes_page_by_page(tmp_path: Path) -> None:
    a, m = Site(tmp_path, "a"), Site(tmp_path, "m")
    a.dial(m.port, "m")
    wanted = sorted(f"site-{number % 7}/{number}" for number in range(2500))
    async with m, a:
        for begin in range(0, len(wanted), 500):
            await a.client(f"client-{begin}", *wanted[begin : begin + 500])
        await m.client("overseer", "site-3/#", "+/12")
        await m.wants(*wanted)
        await a.wants("site-3/#", "+/12")
        rows, after = [], ""
        while (page := await m.broker.stream_links[0].interest("", after, 400)).has_more:
            rows += page.filters
            after = page.filters[-1].filter
            assert len(page.filters) == 400
        rows += page.filters
        assert [row.filter for row in rows] == sorted([*wanted, "site-3/#", "+/12"])
        assert all(
            row.wanted_by == ["a-to-m"] and not row.local and not row.asked_of for row in rows if row.filter in wanted
        )
        narrow = await m.broker.stream_links[0].interest("+/12", "", 400)
        assert {row.filter for row in narrow.filters} == {"+/12", "site-3/#", "site-5/12"}
        by_name = {row.filter: row for row in narrow.filters}
        assert (by_name["+/12"].local, by_name["+/12"].asked_of) == (1, ["a-to-m"])
        seen_from_a = await a.broker.stream_links[0].interest("site-5/12", "", 400)
        assert [(row.filter, row.local, row.wanted_by, row.asked_of) for row in seen_from_a.filters] == [
            ("+/12", 0, ["a-to-m"], []),
            ("site-5/12", 1, [], ["a-to-m"]),
        ]
