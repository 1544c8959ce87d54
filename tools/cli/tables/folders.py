"""What the commands about landing files and tables share: folders, decoders and settings of Spark as options."""

from pathlib import Path
from typing import Annotated

import typer

from tools.cli.paths import state_directory

MASTER_DEFAULT = "local[*]"

LANDING_DEFAULT = "landing in ~/.local/state/holdfast"


def parse_place(text: str) -> str:
    """Returns a path, or the URL of an object store. Raises BadParameter for another URL."""
    if "://" in text:
        from cloud import check_place

        try:
            check_place(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    return text


LandingFolder = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        parser=parse_place,
        help="The folder with the landing files, or s3://BUCKET/PREFIX.",
        show_default=LANDING_DEFAULT,
    ),
]
TablesFolder = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        parser=parse_place,
        help="The folder with the tables, or s3://BUCKET/PREFIX.",
        show_default="tables in ~/.local/state/holdfast",
    ),
]
Decoders = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="A Python file with decoders of your own, or numbers:FILTER to make numbers of texts; may be given again.",
    ),
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


def without_options(place: Path | str) -> str:
    """Returns a path or a URL as people may see it."""
    return str(place).partition("?")[0] if "://" in str(place) else str(Path(place).absolute())


def find_folders(landing: str | None, tables: str | None) -> tuple[Path | str, Path | str]:
    """Returns the folders of landing files and tables: the given ones, or the ones in the state folder."""
    state = state_directory()
    return landing or state / "landing", tables or state / "tables"
