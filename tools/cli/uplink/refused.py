"""``holdfast uplink refused``, ``resend`` and ``discard``: the messages that next brokers will never take."""

from typing import Annotated, Any

import msgspec
import typer

from tools.cli.columns import columns, printable
from tools.cli.uplink.asking import DEFAULT_CONFIG, AsJson, ConfigOption, RouteName, answer
from tools.cli.utc import utc_of

HEADINGS = ("route", "refused", "topic", "bytes", "origin", "epoch", "seq", "reason")


def list_refused(
    route: Annotated[str, typer.Argument(metavar="[ROUTE]", help="Only those of this route.", show_default=False)] = "",
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """List the messages that routes have set aside: their next brokers will never take them. The oldest come first."""
    refused = answer("uplink refused", config, "refused", route)
    if as_json:
        typer.echo(msgspec.json.encode(refused).decode())
    else:
        typer.echo(columns([HEADINGS, *map(_row, refused)]) if refused else "no message is set aside")


def resend(route: RouteName, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Send the messages again that a route has set aside. Messages that are refused again stay set aside."""
    typer.echo(f"{_count(answer('uplink resend', config, 'resend', route))} sent again")


def discard(route: RouteName, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Drop the messages that a route has set aside. The table `dropped` has ranges for them: `rejected`."""
    typer.echo(f"{_count(answer('uplink discard', config, 'discard', route))} dropped")


def _count(messages: int) -> str:
    return "1 message is" if messages == 1 else f"{messages} messages are"


def _row(message: dict[str, Any]) -> tuple[str, ...]:
    origin, epoch, seq = message["identity"]
    return (
        printable(message["route"]),
        utc_of(message["refused_ms"]),
        printable(message["topic"]),
        str(message["bytes"]),
        printable(origin),
        f"{epoch:08x}",
        str(seq),
        printable(message["reason"]),
    )
