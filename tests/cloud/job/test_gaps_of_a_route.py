"""Why messages are missing, from a gateway's store over a route, mosquitto, a lander and the job to the view `gaps`."""

import asyncio
from pathlib import Path
from typing import Any

from gateway.message import Message
from gateway.store import MessageLog
from tests.cloud.engine import Engine
from tests.cloud.lake import Lake
from tests.cloud.landing.running_lander import RunningLander, landed
from tests.uplink.support import opened, route_config, serving, until
from tools.lab.testing.mosquitto import Mosquitto
from uplink.route import Route
from uplink.shape import ShapeConfig
from wire.route_numbers import STATEMENT_TYPE, decode_statement

ACCESS = """topic readwrite telemetry/#
topic readwrite holdfast/#
topic write void/#
"""
"""The broker loses what is published to void/#, and refuses secret/#."""
CONSUMER = "route/central"
NOTED = ("damaged", "filtered", "oversize", "ended")
"""Reasons for which the gateway notes ranges elsewhere than in a route: here they are noted as it does."""
FILTERS = ("telemetry/#", "void/#", "secret/#")
STATING = 3600  # seconds: a statement at each connection, and none between


def message(origin: str, seq: int, topic: str = "telemetry/a", **fields: Any) -> Message:
    return Message(topic, b"%d" % seq, origin=origin, epoch=7, seq=seq, **fields)


async def store(log: MessageLog, origin: str, topics: str, **fields: Any) -> None:
    """Stores a message for each letter: telemetry, void, secret, another topic."""
    names = {"t": "telemetry/a", "v": "void/a", "s": "secret/a", "o": "other/a"}
    for seq, letter in enumerate(topics, 1):
        await log.submit([message(origin, seq, names[letter], **fields)])


async def fill(log: MessageLog) -> None:
    """Stores messages of many devices, each with one fate."""
    await store(log, "set-aside", "tsst")
    await store(log, "whole", "ttt")
    await store(log, "left-out", "ottoto")
    await store(log, "lost-head", "vvtt")
    await store(log, "lost-middle", "tvvt")
    await store(log, "lost-tail", "ttvv")
    for seq, expires_ms in enumerate((0, 1, 1, 0), 1):
        await log.submit([message("expired", seq, expires_ms=expires_ms)])
    await store(log, "evicted", "t" * 60)
    for seq in range(1, 5):
        await log.submit([message("selected", seq, "telemetry/thin")])
    for reason in NOTED:
        for seq in range(1, 4):
            if seq == 2:
                log.drop(reason, CONSUMER, message(reason, seq))
            else:
                await log.submit([message(reason, seq)])


def dropped_by_statements(folder: Path) -> set[str]:
    """The origins of the ranges in all statements that have landed."""
    stated = [decode_statement(row["payload"]) for row in landed(folder) if row["content_type"] == STATEMENT_TYPE]
    return {one.origin for statement in stated for one in statement.dropped}


def devices_landed(folder: Path) -> int:
    return len({(row["origin"], row["seq"]) for row in landed(folder) if row["origin"] != "gateway-1"})


async def test_each_reason_reaches_the_view(tmp_path: Path, lake: Lake) -> None:
    (tmp_path / "access").write_text(ACCESS)
    broker = Mosquitto(tmp_path, f"max_inflight_messages 0\nacl_file {tmp_path}/access", is_persistent=False)
    broker.start()
    lander = RunningLander(broker.port, lake.landing, "lander-1", topic_filter="#")
    keys = {"filters": FILTERS, "statement_interval_s": STATING, "max_messages_per_origin": 50}
    config = route_config(broker.port, shape=[ShapeConfig("telemetry/thin", every=2)], **keys)
    try:
        await asyncio.to_thread(lander.wait_for, "connected")
        async with opened(tmp_path) as log:
            route = Route(config, "gateway-1", log)
            await fill(log)
            async with serving(route):
                await until(lambda: devices_landed(lake.landing) == 76 and route.queue.state.refused_messages == 2)
            log.drop("expired", CONSUMER, message("news", 1))
            async with serving(route):  # at once a statement of all that went before
                await until(lambda: "news" in dropped_by_statements(lake.landing))
                await store(log, "in-transit", "tvt")
                await until(lambda: devices_landed(lake.landing) == 78)
            before = await asyncio.to_thread(gaps, lake)
            assert await route.queue.refusals.discard() == 2
            async with serving(route):
                await until(lambda: "set-aside" in dropped_by_statements(lake.landing))
            after = await asyncio.to_thread(gaps, lake)
    finally:
        lander.stop()
        broker.stop()
    lost = {  # and no gap of `news`, of which no message came over this route
        "lost-head": [(1, 2, 2, "head", "lost")],
        "lost-middle": [(2, 3, 2, "middle", "lost")],
        "lost-tail": [(3, 4, 2, "tail", "lost")],
        "expired": [(2, 3, 2, "middle", "expired")],
        "evicted": [(1, 10, 10, "head", "evicted")],
        **{reason: [(2, 2, 1, "middle", reason)] for reason in NOTED},
    }
    assert before == {
        **lost,
        "lost-head": [(1, 2, 2, "head", "unknown")],  # while numbers wait for an operator that may be theirs
        "set-aside": [(2, 3, 2, "middle", "in transit")],
        "in-transit": [(2, 2, 1, "middle", "in transit")],
    }
    assert after == {
        **lost,
        "set-aside": [(2, 3, 2, "middle", "rejected")],
        "in-transit": [(2, 2, 1, "middle", "lost")],
    }
    assert left_out(lake) == {"left-out": [(1, 1), (4, 4), (6, 6)], "selected": [(2, 2), (4, 4)]}
    assert lake.rows("quarantine") == []


def gaps(lake: Lake) -> dict[str, list[tuple[Any, ...]]]:
    """Takes in what has landed, and returns the gaps of each device."""
    lake.ingest()
    found: dict[str, list[tuple[Any, ...]]] = {}
    for one in Engine("duckdb", lake).rows("SELECT * FROM gaps ORDER BY origin, lo"):
        found.setdefault(one["origin"], []).append(
            tuple(one[name] for name in ("lo", "hi", "missing", "place", "reason"))
        )
    return found


def left_out(lake: Lake) -> dict[str, list[tuple[int, int]]]:
    """Returns what the route says that it has left out of each device's messages, by its filters and its shape."""
    found: dict[str, list[tuple[int, int]]] = {}
    for one in Engine("duckdb", lake).rows("SELECT * FROM left_out ORDER BY origin, lo"):
        assert (one["gateway"], one["route"]) == ("gateway-1", "central")
        found.setdefault(one["origin"], []).append((one["lo"], one["hi"]))
    return found
