"""`holdfast check broker`: the conformance suite against any broker."""

import asyncio
import time
from enum import StrEnum
from typing import Annotated

import typer

from tools.cli.failure import failing_on
from tools.lab.check import report
from tools.lab.check.chapters import load
from tools.lab.check.outcome import NoBroker, Outcome
from tools.lab.check.runner import knock, run
from tools.lab.check.subject import Address
from tools.lab.check.suite import Check
from tools.lab.result import JSON_OPTION, end_judged, quick_option


class Version(StrEnum):
    """The version of MQTT to check."""

    MQTT_3_1_1 = "3.1.1"
    MQTT_5 = "5"


def broker(
    host: Annotated[str, typer.Option(help="The broker's host name or address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Its TCP port.")] = 1883,
    version: Annotated[Version | None, typer.Option(help="Check only this version of MQTT.")] = None,
    user: Annotated[str | None, typer.Option(help="Log in with this user name.")] = None,
    password: Annotated[str | None, typer.Option(envvar="HOLDFAST_PASSWORD", help="The user's password.")] = None,
    quick: Annotated[bool, quick_option()] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Check a broker against every statement of MQTT 3.1.1 and 5.0 that a client can observe."""
    checks = [check for check in load() if version is None or check.version == version.value]
    address = Address(host, port, user, None if password is None else password.encode())
    started = time.monotonic()
    with failing_on(NoBroker, OSError, command="check broker"):
        outcomes = asyncio.run(_knock_and_run(checks, address))
    seconds = time.monotonic() - started
    end_judged("check", "broker", report.judge(outcomes), seconds, report.lines(outcomes), as_json)


async def _knock_and_run(checks: list[Check], address: Address) -> list[Outcome]:
    await knock(address)
    return await run(checks, address)
