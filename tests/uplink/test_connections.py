"""What is told of a route whose connections fail: a fault of the gateway is no fault of the line."""

import asyncio
import contextlib

import pytest

from gateway.counters import RouteState
from tests.uplink.support import until
from uplink.connect.connections import Connections
from uplink.connect.connector import LinkDown
from wire.backoff import Backoff


async def test_an_unexpected_failure_on_each_attempt_is_told_as_a_fault_of_the_gateway(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state, errors = RouteState("central"), [ValueError("gateway '' is no text, or empty"), LinkDown("no route to host")]
    connections = Connections("central", state, Backoff(1, 1), LinkDown)
    allowed, begun = asyncio.Semaphore(0), 0

    async def attempt() -> None:
        nonlocal begun
        begun += 1
        await allowed.acquire()
        raise errors[0]

    serving = asyncio.create_task(connections.serve(attempt))
    allowed.release()
    await until(lambda: begun == 2)
    assert state.fault == connections.problem
    assert "fault of this gateway" in state.fault and "ValueError: gateway '' is no text" in state.fault
    del errors[0]
    allowed.release()
    await until(lambda: begun == 3)
    assert (state.fault, connections.problem) == ("", "no route to host"), "now it is the line"
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
