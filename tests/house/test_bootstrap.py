"""`./holdfast` in a clean copy of the repository: the real set-up, from the real package index or pip's cache."""

import os
import pty
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.house.repository import ROOT, files, name

SETUP_TIMEOUT_S = 170
VERSION_LINE = f"holdfast {tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['version']}\n"


def copied(folder: Path) -> Path:
    """The repository's files and nothing else, in a folder with a blank in its name."""
    clone = folder / "a clone"
    for path in files():
        copy = clone / name(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return clone


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return copied(tmp_path)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A clone whose set-up was killed, and the lines that it said before. Later tests leave the clone set up."""
    clone = copied(tmp_path_factory.mktemp("set up by two"))
    for module in ("ensurepip", "fcntl", "pip", "venv"):  # of another user, in the folder where the command is run
        (clone.parent / f"{module}.py").write_text("raise SystemExit('a module of the current folder')\n")
    process = start(clone, "query", "--help")
    assert process.stderr is not None
    said = [process.stderr.readline() for _ in range(3)]
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert (clone / ".venv/changing").exists()
    return clone, said


class SetUp(NamedTuple):
    """A clone that two commands at once have set up after an interruption, with a Python without ensurepip: what the
    first one showed on a terminal, and what the second one said."""

    clone: Path
    on_terminal: bytes
    second: tuple[int, str, str]


@pytest.fixture(scope="module")
def set_up(interrupted: tuple[Path, list[str]], tmp_path_factory: pytest.TempPathFactory) -> SetUp:
    clone, _ = interrupted
    modules = tmp_path_factory.mktemp("modules")
    (modules / "ensurepip.py").write_text("raise ImportError('left out, as Debian does')\n")
    without_ensurepip = environment(PYTHONPATH=str(modules))
    ours, theirs = pty.openpty()
    first = subprocess.Popen(
        [clone / "holdfast", "--version"],
        cwd=clone.parent,
        env=without_ensurepip,
        stderr=theirs,
        stdout=theirs,
        text=True,
    )
    os.close(theirs)
    said = os.read(ours, 4096)  # it has the lock
    second = start(clone, "--version", **without_ensurepip)
    try:
        while piece := os.read(ours, 4096):
            said += piece
    except OSError:  # Linux's way to say that the other end is closed
        pass
    assert first.wait(SETUP_TIMEOUT_S) == 0, said
    return SetUp(clone, said, end(second))


def environment(**changes: str) -> dict[str, str]:
    """Outside of any virtual environment, with the Python that runs this as `python3`. pip compiles nothing: that takes
    longer than to install it."""
    base = Path(sys.base_prefix) / "bin"
    path = [str(base), *(entry for entry in os.environ["PATH"].split(":") if not entry.startswith(sys.prefix))]
    return {**os.environ, "PATH": ":".join(path), "PIP_NO_COMPILE": "1", **changes}


def start(clone: Path, *arguments: str, **changes: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [clone / "holdfast", *arguments],
        cwd=clone.parent,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=SETUP_TIMEOUT_S)
    return process.returncode, out, err


def test_a_set_up_says_what_its_command_downloads(interrupted: tuple[Path, list[str]]) -> None:
    _, (_, installing, most) = interrupted
    assert "installing" in installing and "a download of about 650 MB" in installing and "Spark" in most


def test_after_an_interruption_a_set_up_begins_anew_and_shows_on_a_terminal_how_far_it_is(set_up: SetUp) -> None:
    """It does so with a Python without ensurepip; the set-up that was interrupted had made .venv with ensurepip."""
    said = set_up.on_terminal
    assert b"making .venv" in said
    assert b"needs: once, some minutes, a download of about 5 MB" in said
    assert b"Collecting typer" in said and b"Successfully installed" in said
    assert said.endswith(VERSION_LINE.replace("\n", "\r\n").encode())


def test_two_at_once_set_up_once_and_a_third_start_sets_up_nothing(set_up: SetUp) -> None:
    assert set_up.on_terminal.count(b"making .venv") == 1
    assert set_up.second == (0, VERSION_LINE, "holdfast: waiting for another set-up to end\n")
    assert end(start(set_up.clone, "--version")) == (0, VERSION_LINE, "")


def test_a_command_of_several_extras_finds_them_installed(set_up: SetUp) -> None:
    clone = set_up.clone
    ready = clone / ".venv/ready"
    before = ready.read_text()
    made_from = before.splitlines()[0]
    ready.write_text("".join(f"{extra}{made_from}\n" for extra in ("gateway", "cloud", "flash", "tools", "")))
    _, _, err = end(start(clone, "demo", "--help"))
    assert "installing" not in err
    ready.write_text("".join(f"{extra}{made_from}\n" for extra in ("gateway", "tools", "")))
    process = start(clone, "demo", "--help")
    assert process.stderr is not None and "installing" in process.stderr.readline()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    (clone / ".venv/changing").unlink(missing_ok=True)  # pip has only begun to read what it has to install
    ready.write_text(before)


def test_what_pip_says_is_shown_when_it_fails(set_up: SetUp) -> None:
    code, _, err = end(start(set_up.clone, "gateway", "run", PIP_CONSTRAINT="/nowhere/constraints.txt"))
    assert code == 2
    assert "\nERROR: " in err
    assert err.endswith("holdfast: pip failed, as it says above\n")
    assert "gateway" not in (set_up.clone / ".venv/ready").read_text().split()
    (set_up.clone / ".venv/changing").unlink()  # pip has changed nothing


def test_an_upgrade_sets_up_anew(set_up: SetUp) -> None:
    with (set_up.clone / "pyproject.toml").open("a") as project:
        project.write("# an upgrade\n")
    process = start(set_up.clone, "--version")
    assert process.stderr is not None
    assert "making .venv" in process.stderr.readline()
    assert "installing" in process.stderr.readline()  # as after an interruption
    os.killpg(process.pid, signal.SIGKILL)
    assert process.communicate()[0] == ""


def test_an_environment_that_the_command_did_not_make_is_left_alone(clone: Path) -> None:
    (clone / ".venv").mkdir()
    (clone / ".venv/precious").touch()
    code, _, err = end(start(clone, "--version"))
    assert code == 2
    assert "was not made by this command" in err
    assert (clone / ".venv/precious").exists()


def test_an_old_python_is_one_clear_line(clone: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for program in ("sh", "dirname", "readlink", "cat", "cksum", "grep"):
        (tools / program).symlink_to(str(shutil.which(program)))
    old = tools / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    code, _, err = end(start(clone, "--version", PATH=str(tools)))
    assert code == 2
    assert err.count("\n") == 1
    assert "Python 3.11" in err
