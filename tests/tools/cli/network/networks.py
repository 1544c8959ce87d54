"""Networks of gateways as their files describe them."""

from collections.abc import Mapping
from pathlib import Path

from gateway.config.errors import ConfigSource
from gateway.config.load import draft_of
from tools.cli.network.faults import findings_in
from tools.cli.network.plan import Plan, Site
from uplink.reading import routes_of

TRUSTING = """
allow * neighbour *
allow * identify *
allow * publish,subscribe #
"""


def gateway(name: str, *tables: str) -> str:
    """The file of a gateway that has access rules beside it, and listens on port 1883 unless a table says otherwise."""
    listens = [] if any("[[listener]]" in table for table in tables) else ['[[listener]]\nkind = "tcp"']
    return "\n".join(
        [f'name = "{name}"\nacl = "{name}.acl"\n[store]\npath = "store"\nvolatile = true', *tables, *listens]
    )


def route(to: str, neighbour: str | None, more: str = "", limit: str = "max_messages = 1000") -> str:
    """A route to a neighbour; ``more`` are further keys of the neighbour's table."""
    name = f'name = "{neighbour}"' if neighbour else ""
    return f"""
[[route]]
name = "to-{(neighbour or to).lower()}"
broker = "mqtt://{to}"
user = "site"
{limit}
[route.neighbour]
{name}
{more}"""


def ring(*names: str) -> dict[str, str]:
    """Each gateway dials the next one, and the last one the first."""
    return {name: gateway(name, route(there, there)) for name, there in zip(names, names[1:] + names[:1], strict=True)}


def cities(**zones: str) -> dict[str, str]:
    """One-hop zones with a letter for each gateway. A gateway dials those with lesser letters, each once."""
    tables: dict[str, list[str]] = {name: [] for members in zones.values() for name in members}
    linked: set[tuple[str, str]] = set()
    for zone, members in zones.items():
        keys = f'zone = "{zone}"\nhops = "one"'
        for here, there in ((one, other) for one in members for other in members if other < one):
            if (here, there) not in linked:
                linked.add((here, there))
                tables[here].append(route(there, there, keys))
                tables[there].append(f'[[neighbour]]\nname = "{here}"\n{keys}')
    return {name: gateway(name, *mine) for name, mine in tables.items()}


def write(folder: Path, files: Mapping[str, str], rules: str = TRUSTING) -> list[str]:
    """Writes the files of gateways by their names, and access rules beside them; returns the paths."""
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)
        (folder / f"{name}.acl").write_text(rules)
    return [str(folder / f"{name}.toml") for name in files]


def plan(files: Mapping[str, str]) -> Plan:
    """The network of gateways with files of these texts, whose rules are not at hand."""
    sites = []
    for name, text in files.items():
        source = ConfigSource(Path(f"{name}.toml"), text)
        draft = draft_of(source)
        routes = list(routes_of(source, draft.routes).values())
        source.raise_errors()
        sites.append(Site(f"{name}.toml", draft.config, routes, None))
    return Plan(sites)


def texts(files: Mapping[str, str]) -> list[str]:
    """The findings in a network, each as file, key and text, but that rules are not at hand."""
    return [f"{one.file}: {one.key}: {one.text}" for one in findings_in(plan(files)) if one.key != "acl"]
