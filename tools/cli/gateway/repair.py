"""``holdfast gateway repair``: makes a damaged store of a gateway whole again."""

import os
from typing import Annotated

import msgspec
import typer

from gateway.config.connectors import command_topics
from gateway.config.load import load
from gateway.store import consumer_names
from gateway.store.repair import Lost, Report, repair
from host.errors import HostError
from tools.cli.failure import failing_on
from tools.cli.gateway.arguments import ConfigAgain, ConfigFile, StreamName, chosen, store_folder
from uplink.queue.route_queue import ROUTE_PREFIX
from uplink.reading import decode_routes


def repair_store(
    file: ConfigFile = None,
    config: ConfigAgain = None,
    stream: StreamName = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as one JSON object.")] = False,
) -> None:
    """Check the message store of a gateway that is stopped. If damaged, write a new one with all that can be read."""
    os.umask(0o077)  # the new store is its owner's alone, as the old one
    with failing_on(HostError, command="gateway repair"):
        path = chosen("gateway repair", file, config)
        gateway_config, tables = load(path)
        consumers = [ROUTE_PREFIX + route.name for route in decode_routes(path, tables)]
        consumers += [consumer_names.COMMANDS + one.name for one in gateway_config.connector if command_topics(one)]
        report = repair(store_folder(gateway_config, stream), gateway_config.name, [] if stream else consumers)
    typer.echo(msgspec.json.encode(report).decode() if as_json else "\n".join(_lines(report)))


def _lines(report: Report) -> list[str]:
    if not report.damage:
        return [f"{report.store}: whole, there is nothing to repair"]
    lines = [f"{report.store}: repaired", *(f"  {what}" for what in report.damage)]
    lines.append(f"  damaged: {report.damaged_pages} pages, {report.damaged_rows} rows")
    lines.append(f"  kept: {report.messages} messages of the log")
    lines += [f"  kept: {count} rows of {table}" for table, count in sorted(report.kept.items()) if count]
    if report.file_lost:
        lines.append("  lost: all other messages, retained messages, sessions and wills that were in the file")
    lines += [f"  lost: {_words(lost, report.file_lost)}" for lost in report.lost]
    lines += [f"  lost: the session of client {client_id!r}" for client_id in report.sessions_lost]
    lines.append(f"  the damaged files are in {report.old}")
    return lines


def _words(lost: Lost, file_lost: bool) -> str:
    if not lost.messages:
        return "how many messages, is not known" if file_lost else "nothing known, perhaps the newest messages"
    at_least = "at least " if file_lost else ""
    last = lost.first_position + lost.messages - 1
    return f"{at_least}{lost.messages} messages, positions {lost.first_position} to {last}"
