"""What the commands about landing files and tables share: folders, decoders and settings of Spark as options."""

from pathlib import Path
from typing import Annotated

import typer

from tools.cli.paths import state_directory

MASTER_DEFAULT = "local[*]"

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
Master = Annotated[str, typer.Option(help="Spark's master, such as spark://host:7077.")]
Settings = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark. May be given several times.")
]


def parse_settings(texts: list[str] | None) -> dict[str, str]:
    """Returns the settings "spark.key=value" by their keys. Raises BadParameter."""
    return dict(_parse_setting(text) for text in texts or [])


def _parse_setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise typer.BadParameter(f"{text!r}: expected a setting of Spark, such as spark.executor.memory=2g")
    return key, value


def find_folders(landing: Path | None, tables: Path | None) -> tuple[Path, Path]:
    """Returns the folders of landing files and tables: those that are given, or those in the state folder."""
    state = state_directory()
    return landing or state / "landing", tables or state / "tables"
