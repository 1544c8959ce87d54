"""What the commands about landing files and tables have in common: their folders and decoders as options."""

from pathlib import Path
from typing import Annotated

import typer

from tools.cli.paths import state_directory

LANDING_DEFAULT = "landing in ~/.local/state/holdfast"

LandingFolder = Annotated[
    Path | None, typer.Option(help="The folder with the landing files.", show_default=LANDING_DEFAULT)
]
TablesFolder = Annotated[
    Path | None, typer.Option(help="The folder with the tables.", show_default="tables in ~/.local/state/holdfast")
]
Decoders = Annotated[
    list[Path] | None, typer.Option(help="A Python file with decoders of your own; may be given again.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print what was done as one JSON object.")]


def find_folders(landing: Path | None, tables: Path | None) -> tuple[Path, Path]:
    """Returns the folders of landing files and tables: those that are given, or those in the state folder."""
    state = state_directory()
    return landing or state / "landing", tables or state / "tables"
