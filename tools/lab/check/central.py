"""`holdfast check central`: whether a broker may have custody of a gateway's messages."""

import asyncio
import ssl
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from host.server import parse_server
from tools.cli.failure import fail, failing_on
from tools.lab.check.custody import FAIL, CustodyTrial, Finding
from tools.lab.check.outcome import Failed, NoBroker
from tools.lab.check.runner import knock
from tools.lab.check.subject import Address
from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option

MESSAGES_USUAL, MESSAGES_QUICK = 5000, 1500


class RestartFailed(Exception):
    """The command that restarts the broker has failed."""


def central(
    url: Annotated[str, typer.Argument(metavar="URL", help="The broker: mqtt://host:port or mqtts://host:port.")],
    messages: Annotated[
        int, typer.Option(min=1, help="How many messages it has to keep for a client that is away.")
    ] = MESSAGES_USUAL,
    restart: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Restart the broker with this command of the shell.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Log in with this user name.")] = None,
    password: Annotated[str | None, typer.Option(envvar="HOLDFAST_PASSWORD", help="The user's password.")] = None,
    ca: Annotated[Path | None, typer.Option(help="The authorities that may sign its certificate: a PEM file.")] = None,
    quick: Annotated[bool, quick_option(messages=MESSAGES_QUICK)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Try whether a broker may have custody of a gateway's messages."""
    try:
        server = parse_server(url, ("mqtt", "mqtts"))
        tls = ssl.create_default_context(cafile=ca) if server.is_encrypted else None
    except ssl.SSLError as error:
        fail("check central", f"{ca}: expected certificates of authorities in PEM: {error.reason}", 2)
    except OSError as error:
        fail("check central", f"{ca}: {error.strerror}", 2)
    except ValueError as error:
        fail("check central", str(error), 2)
    address = Address(server.host, server.port, user, None if password is None else password.encode(), tls)
    trial = CustodyTrial(address, messages, None if restart is None else partial(_restart, restart))
    started = time.monotonic()
    with failing_on(NoBroker, RestartFailed, Failed, OSError, command="check central"):
        findings = asyncio.run(_knock_and_run(trial, address))
    end_judged("check", "central", _judge(trial, findings), time.monotonic() - started, _lines(findings), as_json)


async def _knock_and_run(trial: CustodyTrial, address: Address) -> list[Finding]:
    await knock(address)
    return await trial.run()


async def _restart(command: str) -> None:
    process = await asyncio.create_subprocess_shell(command)
    if code := await process.wait():
        raise RestartFailed(f"{command!r} ended with {code}")


def _judge(trial: CustodyTrial, findings: list[Finding]) -> Judgement:
    violations = [f"{one.what}: {one.text}" for one in findings if one.verdict == FAIL]
    return Judgement(
        not violations,
        messages=trial.sent,
        lost=trial.lost,
        twice=trial.twice,
        violations=violations,
        more={"findings": [asdict(one) for one in findings]},
    )


def _lines(findings: list[Finding]) -> Iterator[str]:
    for one in findings:
        yield f"{one.verdict:4}  {one.what}: {one.text}"
        if one.advice:
            yield f"      {one.advice}"
    may = not any(one.verdict == FAIL for one in findings)
    yield "this broker may have custody" if may else "this broker may not have custody: it would lose messages"
