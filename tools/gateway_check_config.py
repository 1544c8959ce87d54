"""``holdfast gateway check-config``: says whether a gateway would start with a configuration, and starts nothing."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.access import Access
from gateway.accounts import load_accounts
from gateway.config import GatewayConfig, TcpConfig, WebSocketConfig
from gateway.config_file import DEFAULT_PATH, check_files, load
from gateway.errors import GatewayError
from gateway.listeners.tls import make_context
from gateway.places import check_places
from tools.failure import failing_on
from uplink import credentials
from uplink.config import decode_routes


def check_config(
    config: Annotated[Path, typer.Argument(metavar="FILE", help="The gateway's TOML file.")] = DEFAULT_PATH,
) -> None:
    """Check a gateway's configuration with all files that it names."""
    with failing_on(GatewayError, command="gateway check-config"):
        found = check(config)
    typer.echo(f"{config}: ok" if found.listener else f"{config}: ok, but it has no [[listener]]: nobody can connect")


def check(path: Path) -> GatewayConfig:
    """Reads a configuration with all files that it names. Raises ConfigError for what is wrong first."""
    config, tables = load(path)
    routes = decode_routes(path, tables)
    check_files(path, config)
    credentials.check(path, routes)
    check_places(path, config)
    if config.accounts is not None:
        load_accounts(Path(config.accounts))
    if config.acl is not None:
        Access(Path(config.acl))
    for listener in config.listener:
        if isinstance(listener, TcpConfig | WebSocketConfig) and listener.tls:
            make_context(listener.tls)
    return config
