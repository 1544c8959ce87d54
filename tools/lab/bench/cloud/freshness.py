"""How old a message is when a query first finds it: with a gateway as the broker, a lander, and the job each minute.

Nothing is scaled: files roll every 60 s, the job begins every 60 s, and messages come for several minutes.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from cloud import NoTables, OpenTables
from tools.lab.bench.batch.fleet import BME280, Sent, sent_by_fleet
from tools.lab.bench.broker.processes import gateway
from tools.lab.figure import Figure
from tools.lab.testing.client import Client
from tools.lab.testing.process import Process, ProcessFailed, holdfast
from wire.properties import CONTENT_TYPE

MOST_S = 120
INTERVAL_S = 60
DEVICES = 100
RATE = 1  # messages/s: with 100 that it has not acknowledged a lander gets no more, and ends its file early
LOOK_S = 1.0
DEADLINE_S = 600.0


def freshness(place: Path, seconds: float, seed: int) -> Iterator[Figure]:
    """Measures with messages that come for ``seconds``. place: an empty folder."""
    sent = sent_by_fleet(max(1, round(RATE * seconds)), DEVICES, BME280, "JSON", seed)
    with gateway(place) as broker, _running(place, broker.port), ThreadPoolExecutor(1) as thread:
        publishing = thread.submit(lambda: asyncio.run(_publish(broker.port, sent, RATE)))
        ages_s = watch(place / "tables", len(sent), seconds + DEADLINE_S)
        publishing.result()
    age_s = float(np.percentile(ages_s, 95))
    name = f"age of a message when a query finds it, p95, files and runs each {INTERVAL_S} s"
    yield Figure(name, "s", age_s, None, MOST_S, at_most=True)


def watch(tables: Path, messages: int, deadline_s: float) -> np.ndarray:
    """Asks the tables until `messages` messages are in `readings`. Returns the age of each when it was first found, in
    seconds. Raises ProcessFailed if they do not come."""
    ages: list[np.ndarray] = []
    batch = found = 0
    ends = time.monotonic() + deadline_s
    while found < messages:
        if time.monotonic() > ends:
            raise ProcessFailed(f"{found} of {messages} messages came into the tables in {deadline_s:g} s")
        time.sleep(LOOK_S)
        try:
            with OpenTables(tables) as engine:
                seen = time.time()
                sql = f"SELECT batch, epoch_ms(received_at) AS ms FROM readings WHERE record = 0 AND batch > {batch}"
                rows = engine.select(sql).rows
        except NoTables:
            continue
        if rows:
            batches, moments_ms = np.array(rows, np.int64).T
            batch = int(batches.max())
            found += len(rows)
            ages.append(seen - moments_ms / 1000)
    return np.concatenate(ages)


async def _publish(port: int, sent: Sequence[Sent], rate: int) -> None:
    client = await Client("bench-fleet").connect(port)
    began = time.monotonic()
    for number, one in enumerate(sent):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        await client.publish(one.topic, one.payload, qos=1, properties={CONTENT_TYPE: one.content_type})
    await client.disconnect()


@contextmanager
def _running(place: Path, port: int) -> Iterator[None]:
    """Runs a lander and the job."""
    landing = place / "landing"
    landing.mkdir()
    folders = ["--landing", str(landing)]
    lander = ["lander", "run", "--broker", f"mqtt://127.0.0.1:{port}", "--filter", "telemetry/#", *folders]
    lander += ["--roll-seconds", str(INTERVAL_S)]
    job = ["cloud", "ingest", *folders, "--tables", str(place / "tables"), "--every", f"{INTERVAL_S}s"]
    processes = [Process("a lander", holdfast(*lander), ready="subscribed"), Process("the job", holdfast(*job))]
    try:
        for process in processes:
            process.start()
        processes[0].wait_ready()
        yield
    finally:
        for process in processes:
            process.stop()
