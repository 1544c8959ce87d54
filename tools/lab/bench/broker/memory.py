"""``holdfast lab bench memory``: the gateway's memory when idle, with connections and with stored messages."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from tools.lab.bench.broker.client import Client
from tools.lab.bench.broker.processes import bench_folder, gateway, load, mosquitto
from tools.lab.figure import Figure
from tools.lab.result import JSON_OPTION, end_bench, quick_option
from tools.lab.testing.process import Server

IDLE_MB_MAX, CONNECTION_KB_MAX, GROWTH_MB_MAX = 48, 12, 20
START_S_MAX, IDLE_CPU_MAX = 2, 0.01
IDLE_S = 10.0
TITLE = "memory (VmRSS), start-up and idle CPU"


def memory(
    messages: Annotated[int, typer.Option(min=1000, help="How many messages to store.")] = 10_000_000,
    connections: Annotated[int, typer.Option(min=1, help="How many connections to hold open.")] = 1000,
    quick: Annotated[bool, quick_option(messages=100_000, connections=200)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure the gateway's memory, start-up time and idle CPU. Ends with 1 if a goal is missed."""
    started = time.monotonic()
    with bench_folder("lab bench memory") as folder:
        figures = list(_figures(folder, messages, connections))
    end_bench("memory", figures, time.monotonic() - started, as_json, about={"title": TITLE})


def _figures(folder: Path, messages: int, connections: int) -> Iterator[Figure]:
    with ExitStack() as stack:
        ours = stack.enter_context(gateway(folder / "ours"))
        theirs = stack.enter_context(mosquitto(folder / "memory"))
        yield Figure("idle", "MB", _mb(ours), _mb(theirs), IDLE_MB_MAX, at_most=True)
        yield Figure("idle CPU", "of a core", _idle_cpu(ours), _idle_cpu(theirs), IDLE_CPU_MAX, at_most=True)
        mine, others = (_kb_a_connection(one, connections) for one in (ours, theirs))
        yield Figure(f"a connection, of {connections:,}", "kB", mine, others, CONNECTION_KB_MAX, at_most=True)
        load(ours, window=2000, seconds=1, is_kept=True)
        before = _mb(ours)
        load(ours, window=2000, count=messages, is_kept=True)
        yield Figure(f"more with {messages:,} messages stored", "MB", _mb(ours) - before, None, GROWTH_MB_MAX, True)
    started = time.perf_counter()
    with gateway(folder / "ours") as ours:
        passed = time.perf_counter() - started
        yield Figure(f"start-up with {messages:,} messages stored", "s", passed, None, START_S_MAX, at_most=True)
        yield Figure("idle after it", "MB", _mb(ours), None, IDLE_MB_MAX, at_most=True)


def _mb(broker: Server) -> float:
    return broker.status("VmRSS") / 1024


def _idle_cpu(broker: Server) -> float:
    before = broker.cpu_s()
    time.sleep(IDLE_S)
    return (broker.cpu_s() - before) / IDLE_S


def _kb_a_connection(broker: Server, connections: int) -> float:
    before = broker.status("VmRSS")
    clients = [Client(broker.port, f"bench-idle-{number}") for number in range(connections)]
    cost = (broker.status("VmRSS") - before) / connections
    for client in clients:
        client.close()
    return cost
