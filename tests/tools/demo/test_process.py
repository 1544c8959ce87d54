import asyncio
import contextlib
import os
import sys
from pathlib import Path

import pytest

from tools.demo.process import Process, ProcessFailed


def python(log: Path, program: str) -> Process:
    return Process("program", [sys.executable, "-c", program], log)


def test_a_process_is_ready_when_it_says_so_and_its_log_keeps_what_it_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = python(tmp_path / "log", "print('I am ready'); input()")
        await process.start()
        assert await process.says("ready") == "I am ready"
        await process.stop()

    asyncio.run(scenario())
    assert (tmp_path / "log").read_text().startswith("I am ready\n")


def test_a_process_that_ends_instead_is_named_with_its_last_words(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = python(tmp_path / "log", "print('port in use'); raise SystemExit(2)")
        await process.start()
        with pytest.raises(ProcessFailed, match=r"program ended without saying 'ready'\n  \| port in use"):
            await process.says("ready")
        assert await process.ended() == (2, ["port in use"])

    asyncio.run(scenario())


def test_a_killed_process_can_be_started_again_and_must_say_it_is_ready_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        program = "import os, time; print('ready', os.getpid()); time.sleep(60)"
        process = python(tmp_path / "log", program)
        await process.start()
        first = await process.says("ready")
        await process.kill()
        assert not process.running
        await process.start()
        assert await process.says("ready") != first
        await process.kill()

    asyncio.run(scenario())


def test_a_process_that_has_just_ended_keeps_its_exit_code_when_it_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = python(tmp_path / "log", "import os; print(os.getpid(), flush=True); os._exit(3)")
        for _ in range(20):
            await process.start()
            pid = int(await process.says(""))
            with contextlib.suppress(ChildProcessError):  # asyncio was quicker
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # before asyncio hears of it
            await process.kill()
            assert (await process.ended())[0] == 3

    asyncio.run(scenario())


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.demo.process.STOP_DEADLINE_S", 0.2)

    async def scenario() -> None:
        program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready'); time.sleep(60)"
        process = python(tmp_path / "log", program)
        await process.start()
        await process.says("ready")
        await process.stop()
        assert not process.running

    asyncio.run(scenario())
