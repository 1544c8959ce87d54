"""``holdfast network check``: finds what is wrong in a network of gateways before any of them starts."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from gateway.auth.permissions import Access
from gateway.config.errors import ConfigSource
from gateway.config.load import draft_of
from host.errors import ConfigError
from tools.cli.columns import printable
from tools.cli.failure import fail
from tools.cli.network.faults import findings_in
from tools.cli.network.plan import Finding, Plan, Site
from uplink.reading import routes_of


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="The TOML files of the gateways.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as a JSON object.")] = False,
) -> None:
    """Find what is wrong in a network of gateways before any of them starts.

    It reads the files alone, and the access rules beside them: the machine need not be that of any gateway.
    """
    sources: dict[str, ConfigSource] = {}
    sites: list[Site] = []
    errors: list[str] = []
    for path in dict.fromkeys(files):
        try:
            sources[str(path)] = source = ConfigSource(path)
            sites.append(_site_of(source))
        except ConfigError as error:
            errors.append(str(error))
    if errors:
        fail("network check", "\n".join(errors))
    plan = Plan(sites)
    found = findings_in(plan)
    holds = all(one.is_warning for one in found)
    lines = [sources[one.file].line_of(one.key) for one in found]
    if as_json:
        typer.echo(msgspec.json.encode(_result(plan, found, lines, holds)).decode())
    else:
        for one, line in zip(found, lines, strict=True):
            mark = "warning: " if one.is_warning else ""
            typer.echo(printable(f"{one.file}:{line}: {one.key}: {mark}{one.text}"))
        warnings = sum(one.is_warning for one in found)
        typer.echo(
            f"gateways: {len(sites)}, links: {len(plan.links)}, faults: {len(found) - warnings}, warnings: {warnings}"
        )
    raise typer.Exit(0 if holds else 1)


def _site_of(source: ConfigSource) -> Site:
    """Reads a gateway's file, and its access rules if they are there. Raises ConfigError."""
    draft = draft_of(source)
    routes = routes_of(source, draft.routes)
    source.raise_errors()
    config = draft.config
    file = None if config.acl is None else Path(config.acl)
    access = None if file and not file.exists() else Access(file, config.name)
    return Site(str(source.path), config, list(routes.values()), access)


def _result(plan: Plan, found: list[Finding], lines: list[int], holds: bool) -> dict[str, Any]:
    findings = [
        {"file": one.file, "line": line, "key": one.key, "text": one.text, "is_warning": one.is_warning}
        for one, line in zip(found, lines, strict=True)
    ]
    return {"gateways": len(plan.sites), "links": len(plan.links), "holds": holds, "findings": findings}
