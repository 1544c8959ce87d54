"""What the gateway shows of its numbers: to Prometheus, to a health check and below $SYS."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.counters import ConnectorState, ConnectorUnit, Counters, Histogram, LinkStatus, RouteState, State
from gateway.errors import ListenError
from gateway.observe.health import LIMITS, HealthServer
from gateway.observe.metrics import Metrics
from tests.gateway.support import LONG_S
from wire.reasons import BAD_USER_NAME_OR_PASSWORD


@asynccontextmanager
async def serving(metrics: Metrics, problems: list[str]) -> AsyncIterator[HealthServer]:
    server = HealthServer(0, metrics, lambda: problems)
    await server.open()
    try:
        yield server
    finally:
        await server.close()


async def get(port: int, path: str, host: str = "localhost") -> tuple[int, str]:
    """Status and body of an HTTP answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


def samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """What Prometheus reads: (name, label values…): value."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_everything_that_is_counted_is_shown() -> None:
    counters, state = Counters(), State(connections=3, sessions=5, stored_messages=7, stored_bytes=4096)
    counters.messages_received[1] += 4
    counters.messages_sent[2] += 2
    counters.messages_dropped["expired"] += 6
    counters.payload_bytes_received += 400
    counters.refused(BAD_USER_NAME_OR_PASSWORD)
    counters.refused(BAD_USER_NAME_OR_PASSWORD)
    shown = samples(Metrics(counters, lambda: state, list))
    assert shown["holdfast_connections",] == 3
    assert shown["holdfast_sessions",] == 5
    assert shown["holdfast_sessions_away",] == 2
    assert shown["holdfast_stored_messages",] == 7
    assert shown["holdfast_stored_bytes",] == 4096
    assert shown["holdfast_messages_received_total", "1"] == 4
    assert shown["holdfast_messages_sent_total", "2"] == 2
    assert shown["holdfast_messages_dropped_total", "expired"] == 6
    assert shown["holdfast_messages_dropped_total", "oversize"] == 0
    assert shown["holdfast_payload_bytes_received_total",] == 400
    assert shown["holdfast_connections_refused_total", "bad user name or password (0x86)"] == 2
    assert shown["process_resident_memory_bytes",] > 0


def test_numbers_are_read_when_they_are_asked_for() -> None:
    counters = Counters()
    metrics = Metrics(counters, State, list)
    assert samples(metrics)["holdfast_packets_sent_total",] == 0
    counters.packets_sent += 1
    assert samples(metrics)["holdfast_packets_sent_total",] == 1


def test_a_commit_is_counted_in_every_bucket_that_holds_it() -> None:
    counters = Counters()
    for seconds in (0.0004, 0.005, 0.0051, 9.0):
        counters.commit_s.observe(seconds)
    shown = samples(Metrics(counters, State, list))
    assert shown["holdfast_commit_seconds_bucket", "0.0005"] == 1
    assert shown["holdfast_commit_seconds_bucket", "0.005"] == 2
    assert shown["holdfast_commit_seconds_bucket", "0.01"] == 3
    assert shown["holdfast_commit_seconds_bucket", "5.0"] == 3
    assert shown["holdfast_commit_seconds_bucket", "+Inf"] == shown["holdfast_commit_seconds_count",] == 4
    assert shown["holdfast_commit_seconds_sum",] == pytest.approx(9.0105)


def test_a_histogram_puts_every_value_somewhere() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (-1.0, 0.0, 1.0, 1.5, 2.0, 2.1, float("inf")):
        histogram.observe(value)
    assert histogram.counts == [3, 2, 2]


def test_each_route_shows_its_backlog() -> None:
    waiting = RouteState("central", False, 250, 9000, acknowledged_ms=1500, reconnects=2, retries=7)
    waiting.arrived_per_s, waiting.backfill_messages = 5.0, 200
    state = State(routes=[waiting, RouteState('a "b"\n', True)])
    waiting.oldest_ms = int(time.time() * 1000) - 12_500
    shown = samples(Metrics(Counters(), lambda: state, list))
    assert shown["holdfast_route_connected", "central"] == 0
    assert shown["holdfast_route_backlog_messages", "central"] == 250
    assert shown["holdfast_route_backfill_messages", "central"] == 200
    assert shown["holdfast_route_live_messages", "central"] == 50
    assert shown["holdfast_route_backlog_bytes", "central"] == 9000
    assert 12.5 <= shown["holdfast_route_backlog_age_seconds", "central"] < 60
    assert shown["holdfast_route_drain_seconds", "central"] == 50
    assert shown["holdfast_route_drain_seconds", 'a "b"\n'] == 0
    assert shown["holdfast_route_last_acknowledged_timestamp_seconds", "central"] == 1.5
    assert shown["holdfast_route_reconnects_total", "central"] == 2
    assert shown["holdfast_route_retries_total", "central"] == 7
    assert shown["holdfast_route_connected", 'a "b"\n'] == 1
    assert shown["holdfast_route_backlog_age_seconds", 'a "b"\n'] == 0


def test_each_unit_of_a_connector_shows_its_polls() -> None:
    unit = ConnectorUnit("meter", polls=9, errors=4, silences=3, corrupt=1, gaps=2, missed=5, late_most_s=0.25)
    unit.commands.update(yes=3, unknown=1)
    state = State(connectors=[ConnectorState("hall", "", [unit]), ConnectorState("roof", "no such port", [])])
    shown = samples(Metrics(Counters(), lambda: state, list))
    assert (shown["holdfast_connector_up", "hall"], shown["holdfast_connector_up", "roof"]) == (1, 0)
    names = ("polls", "errors", "silences", "corrupt", "exceptions", "gaps", "missed")
    assert [shown[f"holdfast_connector_{name}_total", "hall", "meter"] for name in names] == [9, 4, 3, 1, 0, 2, 5]
    assert shown["holdfast_connector_late_seconds", "hall", "meter"] == 0.25
    commands = {
        written: shown["holdfast_connector_commands_total", "hall", "meter", written] for written in unit.commands
    }
    assert commands == {"yes": 3, "unknown": 1}


def test_each_link_shows_its_neighbour_and_what_is_wanted_over_it() -> None:
    up = LinkStatus(
        "A-to-m",
        "session/A-to-m",
        "A",
        is_dialled_here=False,
        server="",
        zone="plant",
        hops="multi",
        mode="active-active",
        connected=True,
        since_ms=0,
        set_aside="",
        waiting_messages=3,
        waiting_bytes=90,
        is_counted=True,
        wanted=7,
        asked=2,
    )
    aside = replace(up, name="B-to-m", neighbour="B", set_aside="it closes a circle", refused=("'x' (not authorized)",))
    shown = samples(Metrics(Counters(announcements_sent=5), lambda: State(links=[up, aside]), list))
    labels = ("A-to-m", "active-active", "A", "plant")
    assert shown["holdfast_link_connected", *labels] == 1
    assert shown["holdfast_link_set_aside", *labels] == 0
    assert shown["holdfast_link_filters_wanted", *labels] == 7
    assert shown["holdfast_link_filters_asked", *labels] == 2
    assert shown["holdfast_link_backlog_messages", *labels] == 3
    assert shown["holdfast_link_backlog_bytes", *labels] == 90
    assert shown["holdfast_link_set_aside", "B-to-m", "active-active", "B", "plant"] == 1
    assert shown["holdfast_link_filters_refused", "B-to-m", "active-active", "B", "plant"] == 1
    assert shown["holdfast_announcements_sent_total",] == 5


async def test_metrics_are_served() -> None:
    counters = Counters()
    counters.connections_opened = 11
    async with serving(Metrics(counters, State, list), []) as server:
        status, body = await get(server.port, "/metrics")
    assert status == 200
    assert "holdfast_connections_opened_total 11.0\n" in body


async def test_a_health_check_tells_what_is_wrong() -> None:
    problems: list[str] = []
    async with serving(Metrics(Counters(), State, list), problems) as server:
        assert await get(server.port, "/healthz") == (200, "ok\n")
        problems.append("store: the disk is full")
        assert await get(server.port, "/healthz") == (503, "store: the disk is full\n")
        assert (await get(server.port, "/"))[0] == 404


async def test_a_health_check_tells_what_is_to_be_known_though_nothing_is_wrong() -> None:
    server = HealthServer(0, Metrics(Counters(), State, list), list, lambda: ["message store: full"])
    await server.open()
    try:
        assert await get(server.port, "/healthz") == (200, "ok\nmessage store: full\n")
    finally:
        await server.close()


async def test_a_silent_connection_makes_room_for_one_that_asks() -> None:
    """Every user of the machine may connect, and the gateway needs its descriptors for other things."""
    async with serving(Metrics(Counters(), State, list), []) as server:
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(LIMITS.connections + 1)]
        assert await get(server.port, "/healthz") == (200, "ok\n")
        assert await asyncio.wait_for(silent[0][0].read(), LONG_S) == b""
        for _, writer in silent:
            writer.transport.abort()


async def test_a_port_that_is_taken_is_named() -> None:
    metrics = Metrics(Counters(), State, list)
    async with serving(metrics, []) as server:
        with pytest.raises(ListenError, match=f"metrics 127.0.0.1:{server.port}: "):
            await HealthServer(server.port, metrics, list).open()


async def test_a_page_whose_name_was_made_to_lead_here_reads_nothing() -> None:
    """DNS rebinding: the browser believes that it speaks with the page's own server."""
    async with serving(Metrics(Counters(), State, list), []) as server:
        for host in ("attacker.example", "attacker.example:9883", "localhost.attacker.example", "[::1", ""):
            for path in ("/metrics", "/healthz"):
                status, text = await get(server.port, path, host)
                assert status in (400, 403) and "holdfast_" not in text and text != "ok\n"
        for host in ("localhost", f"127.0.0.1:{server.port}", f"[::1]:{server.port}", socket.gethostname()):
            assert await get(server.port, "/healthz", host) == (200, "ok\n")
