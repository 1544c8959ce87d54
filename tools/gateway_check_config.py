"""``holdfast gateway check-config``: says whether a gateway would start with a configuration, and starts nothing."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.access import Access
from gateway.accounts import load_accounts
from gateway.config import DEFAULT_PATH, TcpConfig, WebSocketConfig, check_files, load
from gateway.errors import GatewayError
from gateway.listeners.tls import make_context
from uplink import credentials
from uplink.config import decode_routes


def check_config(
    config: Annotated[Path, typer.Argument(metavar="[FILE]", help="The gateway's TOML file.")] = DEFAULT_PATH,
) -> None:
    """Check a gateway's configuration with all files that it names."""
    try:
        check(config)
    except GatewayError as error:
        typer.echo(f"holdfast gateway check-config: {error}", err=True)
        raise typer.Exit(error.exit_code) from None
    typer.echo(f"{config}: ok")


def check(path: Path) -> None:
    """Reads a configuration, accounts, access rules and certificates. Raises ConfigError for what is wrong first."""
    config, tables = load(path)
    routes = decode_routes(path, tables)
    check_files(path, config)
    credentials.check(path, routes)
    if config.accounts is not None:
        load_accounts(Path(config.accounts))
    if config.acl is not None:
        Access(Path(config.acl))
    for listener in config.listener:
        if isinstance(listener, TcpConfig | WebSocketConfig) and listener.tls:
            make_context(listener.tls)
