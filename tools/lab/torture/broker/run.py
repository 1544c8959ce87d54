"""The torture of a broker: rounds of storm. After each round the gateway must hold as much as before."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.lab.testing.client import Client, UnexpectedEvent
from tools.lab.testing.lines import Lines
from tools.lab.testing.process import Process, python
from tools.lab.testing.serial_line import SerialLine
from tools.lab.torture.broker.gateway import USER, StormedGateway
from tools.lab.torture.broker.session import NUMBERS
from tools.lab.torture.broker.storm import Report, Task
from tools.lab.torture.broker.witness import WITNESS, Witness, WitnessFailed
from wire.codec.packets import MQTT_3_1_1

ROUND_PACKETS = 5_000_000
WARM_UP_PACKETS = 100_000
CALM_S = 120.0  # the time in which the broker must hold as much as before
CALM_PAUSE_S = 2.0  # between two reports, which take the broker's time
GROWTH_MAX = {"blocks": 300_000, "malloc_kb": 24 * 1024}  # at most as much as the log's caches
CLEANED_AT_ONCE = 200
FIRST_USED = 8  # objects of one kind that are made at first use; a leak grows with hundreds of sessions

Say = Callable[[str], None]


@dataclass
class Outcome:
    """The outcome; ``violations`` are sentences, ``failures`` pairs of session number and sentence."""

    packets: int = 0
    sessions: int = 0
    rounds: int = 0
    storm_seconds: float = 0.0
    gateway_cpu_s: float = 0.0
    lines: dict[str, int] = field(default_factory=dict)
    witnessed: int = 0
    witness_longest_s: float = 0.0
    memory_kb: list[int] = field(default_factory=list)
    malloc_kb: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    leaks: dict[str, int] = field(default_factory=dict)
    failures: list[tuple[int, str]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not (self.failures or self.violations or self.leaks)


async def torture(folder: Path, seed: int, packets: int, generators: int, say: Say) -> Outcome:
    """Storms a gateway in an empty folder with at least `packets` packets, from `generators` processes. Passes the
    progress to `say` after each round. Raises ProcessFailed if the gateway does not start."""
    outcome = Outcome()
    async with cables(folder, generators) as (near, far):
        gateway = StormedGateway(folder, near)
        await gateway.up()
        try:
            async with _witnessed(gateway, outcome) as witnesses:
                site = _Site(gateway, far, seed, outcome)
                base = await site.round(min(WARM_UP_PACKETS, packets))
                while outcome.holds and outcome.packets < packets and not any(one.done() for one in witnesses):
                    now = await site.round(min(ROUND_PACKETS, packets - outcome.packets), base)
                    used = f"{now['blocks']:,} blocks and {now['malloc_kb']:,} kB in use"
                    say(f"{outcome.packets:,} packets, {used}, {now['memory_kb']:,} kB from the system")
        except (OSError, UnexpectedEvent) as error:
            outcome.violations.append(f"the gateway does not answer: {error!r}")
        finally:
            if not gateway.running:
                outcome.violations.append("the gateway's process has ended")
            await gateway.down()
        outcome.violations += gateway.complaints()
    return outcome


class _Site:
    """A gateway that runs, and the generators against it."""

    def __init__(self, gateway: StormedGateway, serial: list[str], seed: int, outcome: Outcome) -> None:
        self._gateway = gateway
        self._serial = serial
        self._seed = seed
        self._outcome = outcome
        self._next = [place * NUMBERS for place in range(len(serial))]

    async def round(self, packets: int, base: dict[str, Any] | None = None) -> dict[str, Any]:
        """Runs a storm, waits for calm, and returns the gateway's report. Raises OSError if the gateway has ended."""
        outcome = self._outcome
        started = time.monotonic()
        reports = await asyncio.gather(
            *(self._generate(place, packets // len(self._serial) + 1) for place in range(len(self._serial)))
        )
        outcome.storm_seconds += time.monotonic() - started
        outcome.rounds += 1
        for place, report in enumerate(reports):
            self._next[place] += report.sessions
            outcome.packets += report.packets
            outcome.sessions += report.sessions
            outcome.lines = dict(Counter(outcome.lines) + Counter(report.lines))
            outcome.failures += report.failures
        return await self._calm(base)

    async def _generate(self, place: int, packets: int) -> Report:
        task = Task(list(self._gateway.ways), self._seed, self._next[place], packets, self._serial[place])
        generator = Process("generator", python("tools.lab.torture.broker.storm", json.dumps(asdict(task))))
        code, lines = await generator.to_end()
        if code:
            return Report(failures=[(task.first, f"its generator failed with exit code {code}: {lines[-1:]}")])
        return Report(**json.loads(lines[-1]))

    async def _calm(self, base: dict[str, Any] | None) -> dict[str, Any]:
        """Ends the sessions that the storm may leave, and waits until the gateway has released all of them."""
        outcome, deadline = self._outcome, time.monotonic() + CALM_S
        while True:
            await clean(self._gateway)
            held = await self._gateway.holdings()
            left = [client_id for client_id, _ in held["sessions"] if not client_id.startswith(WITNESS)]
            kinds = Counter(held["kinds"])
            outcome.leaks = _grown(Counter(base["kinds"]), kinds) if base else {}
            if left:
                outcome.leaks["sessions"] = len(left)
            for kind, most in GROWTH_MAX.items():
                if base and held[kind] - base[kind] > most:
                    outcome.leaks[kind] = held[kind] - base[kind]
            if not outcome.leaks or time.monotonic() > deadline:
                outcome.memory_kb.append(held["memory_kb"])
                outcome.malloc_kb.append(held["malloc_kb"])
                outcome.blocks.append(held["blocks"])
                outcome.gateway_cpu_s = held["cpu_s"]
                return held
            await asyncio.sleep(CALM_PAUSE_S)


def _grown(before: Counter[str], now: Counter[str]) -> dict[str, int]:
    return {kind: count for kind, count in (now - before).items() if count > FIRST_USED}


async def clean(gateway: StormedGateway) -> None:
    """Ends all sessions but the witnesses', and removes all retained messages, with means that clients have."""
    lines = Lines(gateway.ways)
    held = await gateway.holdings()
    left = [(name, user) for name, user in held["sessions"] if not name.startswith(WITNESS)]
    for start in range(0, len(left), CLEANED_AT_ONCE):
        await asyncio.gather(*(_end_session(lines, *one) for one in left[start : start + CLEANED_AT_ONCE]))
    if topics := gateway.retained():
        await _forget_retained(lines, topics)


async def _end_session(lines: Lines, client_id: str, user: str | None) -> None:
    """Ends a session by a clean start and a DISCONNECT."""
    client = Client(client_id, clean_start=True, session_expiry_s=0)
    await client.connect_over(await lines.open("mutual" if user == USER else "tcp"))
    await client.disconnect()


async def _forget_retained(lines: Lines, topics: list[str]) -> None:
    client = Client("cleaner", clean_start=True, session_expiry_s=0)
    await client.connect_over(await lines.open("tcp"))
    for topic in topics:
        client.send(topic, b"", qos=0, retain=True)
    await client.disconnect()


@asynccontextmanager
async def cables(folder: Path, count: int) -> AsyncIterator[tuple[list[str], list[str]]]:
    """Serial lines; yields the paths of their near ends and of their far ends."""
    cables = [SerialLine() for _ in range(count)]
    for cable in cables:
        cable.open()
    try:
        yield [cable.near for cable in cables], [cable.far for cable in cables]
    finally:
        for cable in cables:
            cable.close()


@asynccontextmanager
async def _witnessed(gateway: StormedGateway, outcome: Outcome) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Runs ordinary clients meanwhile; yields their tasks, which only end with a failure."""
    lines = Lines(gateway.ways)
    witnesses = {
        Witness("one", 1): ("tcp", "unix"),
        Witness("two", 2): ("tls", "websocket"),
        Witness("old", 2, MQTT_3_1_1): ("unix", "wss"),
    }
    running = [asyncio.create_task(witness.run(lines, kinds)) for witness, kinds in witnesses.items()]
    try:
        yield running
    finally:
        for task in running:
            task.cancel()
        for witness, ended in zip(witnesses, await asyncio.gather(*running, return_exceptions=True), strict=True):
            outcome.witnessed += witness.messages
            outcome.witness_longest_s = max(outcome.witness_longest_s, round(witness.longest_s, 2))
            if isinstance(ended, (WitnessFailed, OSError)):
                outcome.violations.append(f"an ordinary client noticed it: {ended}")
