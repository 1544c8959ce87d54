"""The shape of what a command that measures or judges prints with --json: docs/reference/commands.md, "Results"."""

import re
from typing import Any

NUMBER = (int, float)
COUNTS = ("messages", "lost", "twice", "disorder")
ROW: dict[str, Any] = {
    "what": str,
    "ours": NUMBER,
    "unit": str,
    "peer": (*NUMBER, type(None)),
    "peer_name": (str, type(None)),
    "ratio": (*NUMBER, type(None)),
    "goal": (str, type(None)),
    "holds": (bool, type(None)),
}
GOAL = re.compile(r"[<>]= -?\d[\d.e+-]*")


def faults_of(report: dict[str, Any], kind: str) -> list[str]:
    """Returns the faults of a report, by the kind of its command: "bench", "torture", "check" or "demo"."""
    keys: dict[str, Any] = {kind: str, "seconds": NUMBER, "holds": bool}
    if kind == "bench":
        keys["rows"] = list
    else:
        keys |= {"seed": (int, type(None)), "violations": list} | dict.fromkeys(COUNTS, (int, type(None)))
    faults = _wrong_types(report, keys)
    if faults:
        return faults
    if kind == "bench":
        rows = report["rows"]
        faults = [fault for row in rows for fault in _faults_of_row(row)]
        if not rows or report["holds"] != all(row["holds"] is not False for row in rows):
            faults.append("holds is not what the rows say")
        return faults
    if not all(isinstance(one, str) for one in report["violations"]):
        faults.append("a violation is no sentence")
    if report["holds"] and (report["violations"] or report["lost"]):
        faults.append("it holds, and there are violations or losses")
    return faults


def _faults_of_row(row: dict[str, Any]) -> list[str]:
    faults = _wrong_types(row, ROW)
    if faults:
        return faults
    if set(row) != set(ROW):
        faults.append(f"the keys {sorted(set(row) - set(ROW))} are no row's")
    if (row["peer"] is None) != (row["peer_name"] is None):
        faults.append(f"{row['what']}: a peer has a number and a name")
    if (row["goal"] is None) != (row["holds"] is None) or not GOAL.fullmatch(row["goal"] or ">= 0"):
        faults.append(f"{row['what']}: the goal is {row['goal']!r}, holds is {row['holds']}")
    return faults


def _wrong_types(found: dict[str, Any], keys: dict[str, Any]) -> list[str]:
    return [f"{key} is {found.get(key, 'missing')!r}" for key, types in keys.items() if not _is(found, key, types)]


def _is(found: dict[str, Any], key: str, types: Any) -> bool:
    allowed = types if isinstance(types, tuple) else (types,)
    return key in found and type(found[key]) in allowed
