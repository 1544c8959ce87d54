"""``holdfast site device``: gives devices a key and a certificate, or an account, and their access rules."""

from typing import Annotated

import typer

from tools.cli.failure import fail
from tools.cli.site.commands.arguments import DEFAULT_FOLDER, PassphraseFd, SiteFolder, opened, shown
from tools.cli.site.giving import DAYS, Wish
from tools.cli.site.ledger import CERTIFICATE, PASSWORD, Kind
from tools.cli.site.rules import Rights

DEFAULTS = Rights()


def device(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The devices' client identifiers.")],
    site: SiteFolder = DEFAULT_FOLDER,
    password: Annotated[bool, typer.Option("--password", help="Give an account, and no certificate.")] = False,
    days: Annotated[
        int, typer.Option(min=1, help="How many days a certificate is valid, at most as long as the authority.")
    ] = DAYS,
    publish: Annotated[
        list[str] | None,
        typer.Option(metavar="FILTER", help="What each may publish to, %u is its name; may be repeated."),
    ] = None,
    subscribe: Annotated[
        list[str] | None, typer.Option(metavar="FILTER", help="What each may receive; may be repeated.")
    ] = None,
    holder: Annotated[str, typer.Option(metavar="TEXT", help="What it is given to, such as a board's number.")] = "",
    renew: Annotated[
        bool, typer.Option("--renew", help="Give a new certificate to devices that have one; the old one stays valid.")
    ] = False,
    passphrase_fd: PassphraseFd = None,
) -> None:
    """Give devices a key and a certificate each, or an account, and access rules for each alone."""
    if renew and (password or publish or subscribe or holder):
        fail("site device", "--renew keeps access rules and holder: expected no other option than --days")
    rights = Rights(publish or DEFAULTS.publish, subscribe or DEFAULTS.subscribe)
    kind: Kind = PASSWORD if password else CERTIFICATE
    with opened("site device", site, passphrase_fd) as opened_site:
        if renew:
            given = opened_site.renew(names, days)
        else:
            given = opened_site.give_all([Wish(name, kind, holder, days, rights) for name in names])
    for one in given:
        what = "an account" if one.ends is None else f"a certificate until {one.ends:%Y-%m-%d}"
        typer.echo(f"{one.name}: {what}, in {shown(one.folder)}")
    if renew:
        end = f"`holdfast site revoke {' '.join(names)} --former`"
        typer.echo(f"the former ones stay valid: {end} once the devices have the new ones")
        return
    typer.echo(f"gateways use {shown(opened_site.places.shared)} as it is now once they get SIGHUP")
