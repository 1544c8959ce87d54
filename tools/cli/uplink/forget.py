"""``holdfast uplink forget``: gives up what waits for a route that is no longer configured."""

import typer

from tools.cli.uplink.asking import DEFAULT_CONFIG, ConfigOption, RouteName, answer


def forget(route: RouteName, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Give up what the gateway keeps for a route that is no longer configured.

    The table `dropped` has ranges for it, with reason `ended`.
    """
    typer.echo(f"route {route} is forgotten; {answer('uplink forget', config, 'forget', route)} messages waited for it")
