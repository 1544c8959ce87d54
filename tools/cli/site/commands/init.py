"""``holdfast site init``: makes the authority of a site."""

from typing import Annotated

import typer

from tools.cli.site.commands.arguments import DEFAULT_FOLDER, PassphraseFd, SiteFolder, failing, passphrase_from, shown
from tools.cli.site.making import AUTHORITY_DAYS, make_site
from tools.cli.site.site import Site


def init(
    site: SiteFolder = DEFAULT_FOLDER,
    name: Annotated[str, typer.Option(help="The site's name, by default that of its folder.")] = "",
    days: Annotated[int, typer.Option(min=1, help="How many days the authority is valid.")] = AUTHORITY_DAYS,
    encrypted: Annotated[bool, typer.Option("--encrypt", help="Encrypt the site key with a passphrase.")] = False,
    passphrase_fd: PassphraseFd = None,
) -> None:
    """Make the authority of a site, which signs the certificates of its devices and gateways.

    With --encrypt its key has a passphrase: asked for twice, or read from standard input if that is no terminal.
    """
    with failing("site init"):
        wants_passphrase = encrypted or passphrase_fd is not None
        passphrase = passphrase_from(passphrase_fd, again=True) if wants_passphrase else None
        make_site(site, name or site.resolve().name, days, passphrase)
        made = Site.open(site)
    how = "encrypted" if wants_passphrase else "not encrypted: its owner can make a certificate for any name"
    typer.echo(
        f"site {made.authority.site}: valid until {made.authority.ends:%Y-%m-%d}, in {shown(made.places.folder)}"
    )
    typer.echo(f"site key: {shown(made.places.key)}, {how}; keep a copy elsewhere")
    typer.echo("next: `holdfast site gateway`, `holdfast site device`")
