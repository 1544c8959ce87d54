"""``holdfast gateway seen``: an operator knows of the messages that a full store has dropped."""

import typer

from tools.cli.gateway.arguments import ConfigAgain, ConfigFile, chosen
from tools.cli.uplink.asking import answer


def seen(file: ConfigFile = None, config: ConfigAgain = None) -> None:
    """Say that you have seen which messages a full store has dropped: `/healthz` answers 200 again."""
    stores = answer("gateway seen", chosen("gateway seen", file, config), "seen")
    typer.echo(f"{stores} stores had dropped messages since the last time" if stores else "no message was dropped")
