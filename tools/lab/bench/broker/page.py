"""Writes the page of the gateway's figures from the output of its benchmarks.

``python -m tools.lab.bench.broker.page BROKER FANOUT MEMORY STORAGE UPLINK`` takes files with the output of
``holdfast lab bench NAME --json``.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tools.cli.paths import source_root
from tools.lab.figure import VERDICT, number

PAGE = source_root() / "docs/reference/figures-gateway.md"
SIGNS = {"<=": "≤", ">=": "≥"}
BEGIN, END = "<!-- made of the benchmarks' output by tools/lab/bench/broker/page.py: begin -->", "<!-- end -->"


def renew(page: str, outputs: list[str]) -> str:
    """Returns the page with the figures of these outputs, a section for each."""
    before, _, rest = page.partition(BEGIN)
    sections = "\n".join(map(_section, outputs))
    return f"{before}{BEGIN}\n\n{sections}\n{END}{rest.partition(END)[2]}"


def _section(output: str) -> str:
    report = next(json.loads(line) for line in reversed(output.splitlines()) if line.startswith("{"))
    title = report["title"]
    lines = [
        f"## {title[0].upper()}{title[1:]}",
        "",
        "| | gateway | mosquitto | ratio | goal | |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_row, report["rows"])]) + "\n"


def _row(row: dict[str, Any]) -> str:
    sign, _, goal = (row["goal"] or "").partition(" ")
    cells = [
        f"{row['what']}, {row['unit']}",
        number(row["ours"]),
        "" if row["peer"] is None else number(row["peer"]),
        "" if row["ratio"] is None else number(row["ratio"]),
        f"{SIGNS[sign]} {number(float(goal))}" if goal else "",
        VERDICT[row["holds"]],
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    found = [Path(name).read_text("utf-8") for name in sys.argv[1:]]
    PAGE.write_text(renew(PAGE.read_text("utf-8"), found), "utf-8")
