"""Gateways that are neighbours of each other, each a process of its own."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tools.lab.bench.broker.processes import gateway
from tools.lab.testing.gateway import Gateway

RULES = "".join(f"allow * {rule}\n" for rule in ("connect *", "identify *", "neighbour *", "publish,subscribe #"))
LINK = """\
[[route]]
name = "to-{name}"
broker = "mqtt://127.0.0.1:{port}"
backoff_shortest_ms = 20
backoff_longest_ms = 200
[route.neighbour]
name = "{name}"
"""


def link(name: str, port: int) -> str:
    """Returns the table of a route to the neighbour of this name."""
    return LINK.format(name=name, port=port)


def node(
    folder: Path, name: str, *links: str, core: int = 0, port: int = 0
) -> contextlib.AbstractContextManager[Gateway]:
    """Runs a gateway of a network, with the tables of its links; ``port`` is where it listens, 0: at any free port."""
    return gateway(folder / name, more="".join(links), name=name, rules=RULES, core=core, port=port)


def start_together(stack: ExitStack, *nodes: contextlib.AbstractContextManager[Gateway]) -> list[Gateway]:
    """Starts gateways at the same time, as a start takes longer than most measurements of a short run.

    The threads end with the stack, since the kernel ends a program together with the thread that has started it.
    """
    pool = stack.enter_context(ThreadPoolExecutor(len(nodes)))
    return list(pool.map(stack.enter_context, nodes))
