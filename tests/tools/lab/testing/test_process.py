import os
import sys
from pathlib import Path

import pytest

from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process, ProcessFailed


def python(log: Path, program: str) -> Process:
    return Process("program", [sys.executable, "-c", program], log)


def test_a_process_is_ready_when_it_says_so_and_its_log_keeps_what_it_said(tmp_path: Path) -> None:
    process = python(tmp_path / "log", "import time; print('I am ready'); time.sleep(60)")
    process.start()
    assert process.says("ready") == "I am ready"
    process.stop()
    assert (tmp_path / "log").read_text() == "I am ready\n"


def test_a_process_that_ends_instead_is_named_with_its_last_words(tmp_path: Path) -> None:
    process = python(tmp_path / "log", "print('port in use'); raise SystemExit(2)")
    process.start()
    with pytest.raises(ProcessFailed, match=r"program ended without saying 'ready'\n  \| port in use"):
        process.says("ready")
    with pytest.raises(ProcessFailed, match=r"program does not listen on port \d+\n  \| port in use"):
        process.listens(free_port())
    assert process.ended() == (2, ["port in use"])


def test_a_killed_process_can_be_started_again_and_must_say_it_is_ready_again(tmp_path: Path) -> None:
    process = python(tmp_path / "log", "import os, time; print('ready', os.getpid()); time.sleep(60)")
    process.start()
    first = process.says("ready")
    process.kill()
    assert not process.running
    process.start()
    assert process.says("ready") != first
    process.kill()


def test_a_process_that_has_just_ended_keeps_its_exit_code_when_it_is_killed(tmp_path: Path) -> None:
    process = python(tmp_path / "log", "import os; print(os.getpid(), flush=True); os._exit(3)")
    for _ in range(20):
        process.start()
        pid = int(process.says(""))
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        process.kill()
        assert process.ended()[0] == 3


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.lab.testing.process.STOP_DEADLINE_S", 0.2)
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready'); time.sleep(60)"
    process = python(tmp_path / "log", program)
    process.start()
    process.says("ready")
    process.stop()
    assert not process.running
