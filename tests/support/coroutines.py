"""Runs tests written as coroutines, each on an event loop of its own."""

import asyncio
import inspect
from collections.abc import Coroutine

import pytest

from tests.gateway.support import hang_up

DEADLINE_S = 170.0  # a little less than that of pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(_run(pyfuncitem.obj(**arguments)))
    return True


async def _run(test: Coroutine[None, None, None]) -> None:
    try:
        async with asyncio.timeout(DEADLINE_S):
            await test
    finally:
        await hang_up()
