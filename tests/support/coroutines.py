"""Runs a test that is a coroutine on an event loop of its own; its helpers close on that loop what it left open."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

import pytest

DEADLINE_S = 170.0  # a little less than pytest's own, so that the cleanups still run

Cleanup = TypeVar("Cleanup", bound=Callable[[], Awaitable[None]])
_cleanups: list[Callable[[], Awaitable[None]]] = []


def after_each_test(cleanup: Cleanup) -> Cleanup:
    """Calls ``cleanup`` on the loop of each coroutine test after the test, also if it failed."""
    _cleanups.append(cleanup)
    return cleanup


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(_run(pyfuncitem.obj(**arguments)))
    return True


async def _run(test: Coroutine[None, None, None]) -> None:
    try:
        async with asyncio.timeout(DEADLINE_S):
            await test
    finally:
        for cleanup in _cleanups:
            await cleanup()
