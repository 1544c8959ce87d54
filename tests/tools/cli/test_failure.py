"""A command whose output goes to a full disk says so; one whose reader has ended does not."""

import os
import subprocess
import sys

import pytest

from tests.house.repository import ROOT

HOLDFAST = [sys.executable, "-m", "tools.cli.main"]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [(["--version"], ""), (["device", "inspect", "--help"], " device inspect"), (["network", "--help"], "")],
)
def test_output_that_a_full_disk_does_not_take_ends_the_command_with_2(arguments: list[str], command: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*HOLDFAST, *arguments], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    text = f"holdfast{command}: standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, text)


def test_a_command_whose_reader_has_ended_says_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as pipe:
        done = subprocess.run([*HOLDFAST, "--version"], cwd=ROOT, stdout=pipe, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "")


def test_an_error_that_standard_error_does_not_take_keeps_its_exit_code() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*HOLDFAST, "device", "inspect", "/absent"], cwd=ROOT, stdout=subprocess.PIPE, stderr=full
        )
    assert done.returncode == 2
