"""``holdfast site revoke``: ends what was given to devices and gateways."""

from pathlib import Path
from typing import Annotated

import typer

from host.files import read_file
from tools.cli.columns import printable
from tools.cli.failure import fail
from tools.cli.site.commands.arguments import DEFAULT_FOLDER, PassphraseFd, SiteFolder, opened, shown


def revoke(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Devices or gateways.")] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Revoke this certificate of the site, which the ledger need not know."),
    ] = None,
    former: Annotated[
        bool, typer.Option("--former", help="Revoke only certificates that a renewal has taken the place of.")
    ] = False,
    site: SiteFolder = DEFAULT_FOLDER,
    passphrase_fd: PassphraseFd = None,
) -> None:
    """End what was given: account, access rules, and certificates, which go on the revocation list.

    Its keys are deleted from the site's folder. Gateways end its connections once they get SIGHUP.
    """
    if bool(names) == (certificate is not None) or (former and certificate is not None):
        fail("site revoke", "expected names, or --certificate FILE")
    with opened("site revoke", site, passphrase_fd) as opened_site:
        if certificate is not None:
            ended = opened_site.revoke_certificate(read_file(certificate), str(certificate))
        elif former:
            ended = opened_site.revoke_former(names or [])
        else:
            ended = opened_site.revoke(names or [])
    for line in ended:
        number = f", serial number {line.serial}" if line.serial else ""
        typer.echo(f"{printable(line.name)}: its {line.kind} is revoked{number}")
    typer.echo(f"gateways use {shown(opened_site.places.shared)} as it is now once they get SIGHUP")
