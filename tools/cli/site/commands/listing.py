"""``holdfast site list``: what a site has given to which device and gateway."""

from typing import Annotated

import msgspec
import typer

from tools.cli.columns import columns, printable
from tools.cli.failure import complain
from tools.cli.site.commands.arguments import DEFAULT_FOLDER, SiteFolder, opened
from tools.cli.site.commands.looking import Listed, end_words, listed, strays
from tools.cli.site.ledger import Line
from tools.cli.utc import utc_of

HEADINGS = ("name", "what", "state", "given", "until", "holder", "serial number", "to look at")


def list_given(
    site: SiteFolder = DEFAULT_FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array with one object for each line.")] = False,
) -> None:
    """List what was given to which device and gateway, in the order of giving. Nothing is changed."""
    with opened("site list", site) as opened_site:
        lines = listed(opened_site)
        for text in strays(opened_site):
            complain("site list", text)
        end = end_words(opened_site)
    if as_json:
        typer.echo(msgspec.json.encode([_object(one) for one in lines]).decode())
    else:
        typer.echo(columns([HEADINGS, *map(_row, lines)]))
        typer.echo(f"site {opened_site.authority.site}: its authority ends on {end}")


def _object(listed: Listed) -> dict[str, object]:
    return {**msgspec.structs.asdict(listed.line), "has_files": listed.has_files, "problems": listed.problems}


def _row(listed: Listed) -> tuple[str, ...]:
    line: Line = listed.line
    remarks = listed.problems if listed.has_files or not line.is_open else [*listed.problems, "its files are not here"]
    return (
        printable(line.name),
        line.kind,
        line.state,
        utc_of(line.given_ms),
        utc_of(line.ends_ms) if line.ends_ms else "-",
        printable(line.holder) or "-",
        line.serial or "-",
        "; ".join(remarks) or "-",
    )
