"""``holdfast cloud verify``: counts the tables again."""

import json
import sys
from typing import Annotated

import typer

from cloud import Check, verify
from tools.cli.columns import columns, printable
from tools.cli.tables.folders import (
    MASTER_DEFAULT,
    LandingFolder,
    Master,
    Settings,
    TablesFolder,
    find_folders,
)
from tools.cli.tables.interval import parse_interval
from tools.cli.tables.session import session

COMMAND = "cloud verify"
UNPROVED = 3
"""The exit code where nothing is wrong, and data files have no digest that could prove them."""


def verify_tables(
    landing: LandingFolder = None,
    tables: TablesFolder = None,
    fresh: Annotated[
        float,
        typer.Option(
            metavar="INTERVAL", parser=parse_interval, help="How long a message may wait in a landing file, such as 5m."
        ),
    ] = "1h",  # type: ignore[assignment]
    full: Annotated[bool, typer.Option("--full", help="Read the bytes of all files, and not of a sample.")] = False,
    seal: Annotated[
        bool,
        typer.Option(
            "--seal", help="Check all files, and give each file without a digest a name with one, if all is well."
        ),
    ] = False,
    master: Master = MASTER_DEFAULT,
    conf: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as one JSON object.")] = False,
) -> None:
    """Count the tables again, against the manifests, the ledger and each other. Ends with 1 on a fault.

    Ends with 3 if nothing is wrong, and data files have no digest.
    """
    landed, folder = find_folders(landing, tables)
    with session(COMMAND, master, conf):
        checks = verify(None, landed, folder, fresh_s=fresh, full=full, seal=seal)
    failed = [check for check in checks if not check.holds]
    unproved = sum(check.faults for check in failed if check.is_unproved)
    facts = {"holds": not failed, "unproved": unproved, "checks": [_facts(check) for check in checks]}
    print(json.dumps(facts) if as_json else _lines(checks))
    if not all(check.is_unproved for check in failed):
        raise typer.Exit(1)
    if unproved:
        if not as_json:
            advice = f"`holdfast {COMMAND} --seal` checks them, and gives them names with the digests of today"
            print(f"{unproved} data files have no digest, and are not proved: {advice}", file=sys.stderr)
        raise typer.Exit(UNPROVED)


def _facts(check: Check) -> dict[str, object]:
    return {**check._asdict(), "holds": check.holds}


def _word(check: Check) -> str:
    if check.is_unproved:
        return "UNPROVED"
    return "holds" if check.holds else "FAULT"


def _lines(checks: list[Check]) -> str:
    rows: list[tuple[str, ...]] = [
        (
            _word(one),
            one.table,
            one.check,
            (one.detail or "") if one.holds else f"{one.faults}: {one.detail}",
        )
        for one in checks
    ]
    return columns([tuple(map(printable, row)) for row in rows])
