"""What a gateway keeps of a neighbour's filters takes little memory."""

import gc
import hashlib
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config.schema import LimitsConfig
from tests.gateway.support import running
from wire.codec.packets import NO_LOCAL, RETAIN_AS_PUBLISHED

COUNT = 11_000  # dictionaries have just doubled, so their free places count
AT_ONCE = 1_000  # in one SUBSCRIBE
BYTES_MAX = 800  # of one filter: its text, its subscription and its interest
LIMITS = LimitsConfig(subscriptions=COUNT, kept_bytes=1 << 30)


def state_of_a_machine(number: int) -> str:
    return f"site-{number // 500:04}/line-{number // 50 % 10}/machine-{number:05}/state"


def point_of_a_machine(number: int) -> str:
    return f"site-{number // 10_000:04}/line-{number // 1000 % 10}/machine-{number // 10:05}/p-{number % 10:03}"


def all_of_a_machine(number: int) -> str:
    return f"site-{number // 500:04}/line-{number // 50 % 10}/machine-{number:05}/#"


def response_topic(number: int) -> str:
    return f"reply/{hashlib.md5(str(number).encode()).hexdigest()}"


@pytest.mark.parametrize("filter_of", [state_of_a_machine, point_of_a_machine, all_of_a_machine, response_topic])
async def test_a_filter_of_a_neighbour_takes_at_most_800_bytes(filter_of: Callable[[int], str], tmp_path: Path) -> None:
    async with running(tmp_path, limits=LIMITS) as broker:
        session = broker.sessions.create("neighbour", None, 3600, durable=True)
        gc.collect()
        tracemalloc.start()
        try:
            for first in range(0, COUNT, AT_ONCE):
                for topic_filter in map(filter_of, range(first, first + AT_ONCE)):
                    broker.services.subscribers.subscribe(session, topic_filter, 2 | NO_LOCAL | RETAIN_AS_PUBLISHED)
                await broker.sessions.save("neighbour")
            gc.collect()
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(session.cursor.filters) == COUNT
        assert sum(1 for _ in broker.network.interest.told_to(("link", "other"))) == COUNT
        assert taken / COUNT <= BYTES_MAX
