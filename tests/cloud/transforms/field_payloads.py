"""Payloads from the field: what the job makes of each, what is right, and the table of both on the page of decoders.

`python -m tests.cloud.transforms.field_payloads` writes the table into the page.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from cloud.transforms.record import Message
from cloud.transforms.rows import decode, read_times, reading_rows
from tests.support.cases import CASES
from tools.cli.paths import source_root

PAYLOADS = CASES / "data/payloads.jsonl"
EXPECTED = Path(__file__).with_suffix(".json")
PAGE = source_root() / "docs/reference/decoders.md"
HEADING = "## Payloads from the field\n"
LANDED = datetime(2026, 11, 26, 11, tzinfo=UTC)
"""When all of them landed: within the day that most of them tell."""
_SHOWN_MAX = 3
_NOT_SHOWN = {"leading_slash"}  # its topic looks like a folder of one machine, which no page names


class Case(NamedTuple):
    """A payload with a name that no other has."""

    name: str
    message: Message


def read_cases(path: Path = PAYLOADS) -> list[Case]:
    """Returns the payloads. A name that comes again gets a number."""
    landed_us = round(LANDED.timestamp() * 1_000_000)
    seen: dict[str, int] = {}
    cases = []
    for line in path.read_text().splitlines():
        one = json.loads(line)
        count = seen[one["name"]] = seen.get(one["name"], 0) + 1
        name = one["name"] if count == 1 else f"{one['name']} {count}"
        payload = bytes.fromhex(one["payload_hex"])
        cases.append(Case(name, Message(one["topic"], one["content_type"], payload, landed_us, landed_us)))
    return cases


def outcome_of(message: Message) -> dict[str, Any]:
    """Returns what becomes of a message: `readings`, the reason in `quarantine`, or nothing if it has no value."""
    landed_ms = round(LANDED.timestamp() * 1000)
    columns: dict[str, list[object]] = {
        "origin": ["an origin"],
        "epoch": [1],
        "seq": [1],
        "topic": [message.topic],
        "payload": [message.payload],
        "content_type": [message.content_type],
        "received_ms": [landed_ms],
        "landed_ms": [landed_ms],
    }
    table = pa.table(columns).set_column(5, "content_type", pa.array(columns["content_type"], pa.string()))
    decoded = decode(read_times(table, landed_ms, "a file", 1))
    (reason,) = decoded.problems.to_pylist()
    if reason is not None:
        return {"quarantine": reason}
    readings = [_reading(row) for row in reading_rows(decoded).to_pylist()]
    return {"readings": readings} if readings else {}


def _reading(row: dict[str, Any]) -> dict[str, Any]:
    kinds = ("value", "value_string", "value_bool", "value_data")
    (value,) = (row[kind] for kind in kinds if row[kind] is not None)
    reading = {"device": row["device"], "metric": row["metric"], "value": value}
    if row["event_time_by"] == "device":
        reading["time"] = row["time"].isoformat().replace("+00:00", "Z")
    if row["unit"] is not None:
        reading["unit"] = row["unit"]
    if row["quality"] != "good":
        reading["quality"] = row["quality"]
    if row["historical"] is not None:
        reading["historical"] = row["historical"]
    return reading


def render(cases: list[Case]) -> str:
    """Returns the table for the page."""
    lines = ["| payload | topic | what becomes of it |", "|---|---|---|"]
    lines += [
        f"| {case.name.replace('_', ' ')} | `{_plain(case.message.topic)}` | {_told(outcome_of(case.message))} |"
        for case in cases
        if case.name not in _NOT_SHOWN
    ]
    return "\n".join(lines) + "\n"


def _told(outcome: dict[str, Any]) -> str:
    if "quarantine" in outcome:
        return f"quarantine: `{_plain(outcome['quarantine'])}`"
    readings = outcome.get("readings")
    if not readings:
        return "no value"
    shown = "; ".join(map(_reading_told, readings[:_SHOWN_MAX]))
    rest = len(readings) - _SHOWN_MAX
    return shown + (f"; and {rest} more" if rest > 0 else "")


def _reading_told(reading: dict[str, Any]) -> str:
    value = json.dumps(reading["value"], ensure_ascii=False)
    more = [reading[name] for name in ("unit", "time", "quality") if name in reading]
    more += ["historical"] if reading.get("historical") else []
    told = f"`{_plain(reading['device'])} {_plain(reading['metric'])} {_plain(value)}`"
    return f"{told} ({', '.join(map(_plain, more))})" if more else told


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")


def table_of_the_page() -> str:
    """Returns the table that the page has."""
    _, _, section = PAGE.read_text().partition(HEADING)
    table = section[section.index("| payload |") :]
    return table.partition("\n\n")[0].rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().replace(table_of_the_page(), render(read_cases())))
