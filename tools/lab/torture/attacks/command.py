"""``holdfast lab torture attacks``: how attacks delay an ordinary client, and the gateway's memory meanwhile."""

import asyncio
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from tools.cli.failure import failing_on
from tools.cli.paths import memory_folder
from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.lab.testing.client import UnexpectedEvent
from tools.lab.testing.gateway import Gateway
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process, ProcessFailed, python
from tools.lab.torture.attacks.kinds import ATTACKS
from tools.lab.torture.attacks.peers import PEERS
from tools.lab.torture.broker.witness import OrdinaryClient, WitnessFailed

WAIT_MAX_S = 0.5
MEMORY_MAX_MB = 100
PAUSE_S = 0.02  # between an acknowledgement and the next message
SAMPLE_S = 0.1


@dataclass
class Outcome:
    """The effect of one attack: ``acknowledged`` messages of an ordinary client, the longest wait of one of them, the
    gateway's most processor time during a wait, both in seconds, the growth of the gateway's memory in MB of 10**6
    bytes, and texts about failures. On a busy machine the processor time shows the gateway's part of the wait."""

    attack: str
    acknowledged: int = 0
    longest_wait_s: float = 0.0
    longest_work_s: float = 0.0
    memory_mb: float = 0.0
    fault: str = ""

    @property
    def holds(self) -> bool:
        return not self.fault and self.longest_wait_s <= WAIT_MAX_S and self.memory_mb <= MEMORY_MAX_MB


def attacks(
    seconds: Annotated[float, typer.Option(min=1, help="Seconds that each attack takes.")] = 60.0,
    attack: Annotated[list[str] | None, typer.Option(help="Run only this attack. May be given several times.")] = None,
    quick: Annotated[bool, quick_option(seconds=1.0)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Attack a gateway with default limits while an ordinary client publishes.

    Ends with 1 if one of the client's PUBACKs takes more than 0.5 s, or the gateway's memory grows by more than 100 MB.
    """
    known = [*ATTACKS, *PEERS]
    names = attack or known
    if unknown := [name for name in names if name not in known]:
        raise typer.BadParameter(f"no attack {unknown[0]!r}; there are {', '.join(known)}")
    started_s = time.monotonic()
    outcomes = []
    with failing_on(ProcessFailed, OSError, command="lab torture attacks"):
        for name in names:
            with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
                outcomes.append(uvloop.run(_endure(Path(folder), name, seconds)))
            if not as_json:
                print(_line(outcomes[-1]), flush=True)
    bad = [_line(outcome) for outcome in outcomes if not outcome.holds]
    judgement = Judgement(
        not bad,
        messages=sum(outcome.acknowledged for outcome in outcomes),
        violations=bad,
        more={"attacks": [{**asdict(outcome), "holds": outcome.holds} for outcome in outcomes]},
    )
    end_judged("torture", "attacks", judgement, time.monotonic() - started_s, [], as_json)


async def _endure(folder: Path, name: str, seconds: float) -> Outcome:
    """Runs a gateway and an ordinary client, and attacks it. Raises ProcessFailed, OSError."""
    outcome = Outcome(name)
    other = free_port()
    peer = PEERS.get(name)
    tables, rules = (peer.config.format(other=other), peer.rules) if peer else ("", "")
    gateway = Gateway(folder, tables, name="attacked", rules=rules, limits="")
    await gateway.up()
    try:
        client = OrdinaryClient("ordinary")
        try:
            await client.connect(gateway.port)
            await client.publish_all("ordinary", [b"first"], 1)
            await _attack(client, gateway, [name, str(seconds), str(other)], outcome, folder)
        finally:
            client.cut()
    finally:
        gateway.kill()
    return outcome


async def _attack(client: OrdinaryClient, gateway: Gateway, task: list[str], outcome: Outcome, folder: Path) -> None:
    """Runs the attacker beside the client, to the end of either."""
    before_kb = gateway.status("VmRSS")
    argv = python("tools.lab.torture.attacks.kinds", str(gateway.port), *task)
    attacker = Process("attacker", argv, folder / "attacker")
    attacker.start()
    publishing = asyncio.create_task(_publish(client, gateway, outcome))
    ended = asyncio.create_task(asyncio.to_thread(attacker.ended))
    try:
        while not ended.done() and not publishing.done():
            await asyncio.wait([ended, publishing], timeout=SAMPLE_S, return_when=asyncio.FIRST_COMPLETED)
            outcome.memory_mb = max(outcome.memory_mb, round((gateway.status("VmRSS") - before_kb) * 1024 / 1e6, 1))
        if ended.done() and ended.result()[0]:
            said = [*ended.result()[1][-3:], "the gateway said:", *gateway.lines[-3:]]
            outcome.fault = "the attacker failed: " + " | ".join(said)
    finally:
        publishing.cancel()
        await asyncio.to_thread(attacker.stop)
        await ended
        try:
            await publishing
        except asyncio.CancelledError:
            pass
        except (WitnessFailed, UnexpectedEvent, OSError) as error:
            outcome.fault = f"the ordinary client noticed it: {error}"


async def _publish(client: OrdinaryClient, gateway: Gateway, outcome: Outcome) -> None:
    while True:
        sent_s, worked_s = time.monotonic(), _work_s(gateway)
        try:
            await client.publish_all("ordinary", [b"x" * 100], 1)
            outcome.acknowledged += 1
        finally:  # a message that still waits counts too
            outcome.longest_wait_s = max(outcome.longest_wait_s, round(time.monotonic() - sent_s, 3))
            outcome.longest_work_s = max(outcome.longest_work_s, round(_work_s(gateway) - worked_s, 3))
        await asyncio.sleep(PAUSE_S)


def _work_s(gateway: Gateway) -> float:
    """Returns the processor time of the gateway's threads. Raises OSError if it has ended."""
    threads = Path(f"/proc/{gateway.pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def _line(outcome: Outcome) -> str:
    waited = f"the longest wait {outcome.longest_wait_s:.3f} s ({outcome.longest_work_s:.3f} s of work)"
    fault = outcome.fault or ("" if outcome.holds else "DOES NOT HOLD")
    return f"{outcome.attack:22} {outcome.acknowledged:6,} acknowledged, {waited}, {outcome.memory_mb:+.1f} MB {fault}"
