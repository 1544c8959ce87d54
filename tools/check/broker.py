"""`holdfast check broker`: the conformance suite against any broker."""

import asyncio
import os
import time
from enum import StrEnum
from typing import Annotated

import typer

from tools.check import report
from tools.check.runner import run
from tools.check.subject import Address
from tools.check.suite import load
from tools.failure import fail
from tools.result import JSON_OPTION, end_judged, quick_option


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
    """Check a broker against every statement of MQTT 3.1.1 and 5.0 that a client can observe.

    The clients, sessions and retained messages that this takes are removed again. Ends with 1 if the broker breaks a
    statement, with 2 if no broker answers.
    """
    checks = [check for check in load() if version is None or check.version == version.value]
    address = Address(host, port, user, None if password is None else password.encode())
    started = time.monotonic()
    try:
        outcomes = asyncio.run(run(checks, address))
    except OSError as error:  # a timeout is one too
        fail("check broker", f"no broker at {host}:{port}: {os.strerror(error.errno) if error.errno else error}")
    seconds = time.monotonic() - started
    end_judged("check", "broker", report.judge(outcomes), seconds, report.lines(outcomes), as_json)
