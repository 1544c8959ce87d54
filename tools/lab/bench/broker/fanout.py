"""``holdfast lab bench fanout``: messages through the gateway to its subscribers, beside mosquitto in the same run."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from tools.lab.bench.broker.disk import sync_s
from tools.lab.bench.broker.processes import Generator, bench_folder, gateway, mosquitto
from tools.lab.figure import Figure
from tools.lab.result import JSON_OPTION, end_bench, quick_option
from wire.codec.packets import MQTT_3_1_1, MQTT_5

SUBSCRIBERS = (1, 10, 100)
WINDOW = 200
LEAST_TIMES_MEMORY = 1.5
ONCE_SUBSCRIBERS = (1, 10)
ONCE_LEAST_TIMES_MEMORY = 1.0
LEAST_OF_SYNC = 0.9
MATCHING = 10
FEW, MANY = 100, 100_000
MOST_TIMES_FEW = 1.5
TITLE = "QoS 1 publishes of 100 B through to online QoS 1 subscribers, one publisher, window 200"


def fanout(
    seconds: Annotated[float, typer.Option(min=0.2, help="Seconds that each measurement takes.")] = 2.0,
    quick: Annotated[bool, quick_option(seconds=0.3)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure messages per second from publisher to subscribers, beside mosquitto. Ends with 1 if a goal is missed."""
    started = time.monotonic()
    with bench_folder("lab bench fanout") as folder, ExitStack() as stack:
        figures = list(_figures(folder, stack, seconds))
    end_bench("fanout", figures, time.monotonic() - started, as_json, about={"title": TITLE})


def _figures(folder: Path, stack: ExitStack, seconds: float) -> Iterator[Figure]:
    ours = stack.enter_context(gateway(folder / "ours"))
    memory = stack.enter_context(mosquitto(folder / "memory"))
    generator = Generator(ours)
    for count, level in [*((count, MQTT_3_1_1) for count in SUBSCRIBERS), (1, MQTT_5)]:
        task = {"level": level, "subscribers": count, "window": WINDOW, "seconds": seconds}
        theirs, mine = generator.load(memory, **task), generator.load(ours, **task)
        bar, allowed = LEAST_TIMES_MEMORY * theirs["rate"], LEAST_OF_SYNC * WINDOW / sync_s(folder)
        name = f"to {count} subscriber{'s' if count > 1 else ''}" + (" over MQTT 5" if level == MQTT_5 else "")
        limit = ", as the disk allows" if allowed < bar else ""
        yield Figure(name + limit, "messages/s", mine["rate"], theirs["rate"], min(bar, allowed))
        yield Figure(f"{name}, processor time for a message", "us", mine["broker_us"], theirs["broker_us"])
    for count in ONCE_SUBSCRIBERS:
        theirs = generator.load(memory, qos=2, subscribers=count, window=WINDOW, seconds=seconds)["rate"]
        rate = generator.load(ours, qos=2, subscribers=count, window=WINDOW, seconds=seconds)["rate"]
        name = f"the same at QoS 2 from end to end, to {count}"
        yield Figure(name, "messages/s", rate, theirs, ONCE_LEAST_TIMES_MEMORY * theirs)
    yield generator.figure()
    costs = {
        (broker, others): _cost_us(generator.load(broker, subscribers=MATCHING, others=others, seconds=seconds))
        for others in (FEW, MANY)
        for broker in (ours, memory)
    }
    name = f"a publish to {MATCHING} among {{:,}} wildcard subscriptions"
    yield Figure(name.format(FEW), "us", costs[ours, FEW], costs[memory, FEW])
    bar = MOST_TIMES_FEW * costs[ours, FEW]
    yield Figure(name.format(MANY), "us", costs[ours, MANY], costs[memory, MANY], bar, at_most=True)


def _cost_us(result: dict[str, float]) -> float:
    return 1e6 / result["rate"]
