"""``holdfast site gateway``: gives a gateway its certificate, and says how its configuration uses the site."""

from typing import Annotated

import typer

from tools.cli.site.commands.arguments import DEFAULT_FOLDER, PassphraseFd, SiteFolder, opened
from tools.cli.site.giving import DAYS, Wish
from tools.cli.site.ledger import GATEWAY

CONFIGURATION = """\
accounts = "{shared}/accounts"
acl = "{shared}/access"

[[listener]]  # for devices with a certificate
kind = "tcp"
host = "::"
port = 8883

[listener.tls]
certificate = "{folder}/certificate.pem"
key = "{folder}/key.pem"
client_ca = "{shared}/authority.pem"
client_crl = "{shared}/revoked.pem"

[[listener]]  # for devices with a password
kind = "tcp"
host = "::"
port = 8884

[listener.tls]
certificate = "{folder}/certificate.pem"
key = "{folder}/key.pem"
"""


def gateway(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The gateway's name.")],
    host: Annotated[
        list[str],
        typer.Option(metavar="HOST", help="A host name or address by which devices reach it; may be repeated."),
    ],
    site: SiteFolder = DEFAULT_FOLDER,
    days: Annotated[
        int, typer.Option(min=1, help="How many days the certificate is valid, at most as long as the authority.")
    ] = DAYS,
    passphrase_fd: PassphraseFd = None,
) -> None:
    """Give a gateway a key and a certificate that devices of the site trust, and print lines for its configuration."""
    with opened("site gateway", site, passphrase_fd) as opened_site:
        (given,) = opened_site.give_all([Wish(name, GATEWAY, days=days, hosts=host)])
    assert given.ends is not None
    typer.echo(
        f"# {name}: a certificate until {given.ends:%Y-%m-%d}. These lines belong in the gateway's configuration:"
    )
    typer.echo(CONFIGURATION.format(shared=opened_site.places.shared, folder=given.folder), nl=False)
