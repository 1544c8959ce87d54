"""``holdfast uplink export`` and ``import``: a backlog travels in a file, for example on a USB stick."""

from pathlib import Path
from typing import Annotated

import typer

from tools.cli.uplink.asking import DEFAULT_CONFIG, ConfigOption, RouteName, answer

BacklogFile = Annotated[Path, typer.Argument(metavar="FILE", help="The backlog file.")]


def export(route: RouteName, file: BacklogFile, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Write what waits for a route to a new file. When the file is complete and synced, it no longer waits.

    The gateway writes the file, so its user must be allowed to.
    """
    path = file.absolute()
    messages = answer("uplink export", config, "export", route, str(path))
    typer.echo(f"{messages} messages are in {path}, and no longer wait for route {route}")


def import_file(file: BacklogFile, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Store the messages of a file that another gateway has exported, with their identities.

    A file that was imported already changes nothing. The gateway reads the file, so its user must be allowed to.
    """
    path = file.absolute()
    messages = answer("uplink import", config, "import", file=str(path))
    typer.echo(f"{messages} messages of {path} are imported" if messages else f"{path}: nothing in it is new here")
