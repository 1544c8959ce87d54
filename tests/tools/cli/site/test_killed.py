"""A command that was killed at any line and is run again ends well: no name is given twice, no key is without a line of
the ledger, and no line claims what is not there.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.repository import ROOT
from tools.cli.site.giving import Wish
from tools.cli.site.ledger import PASSWORD
from tools.cli.site.making import make_site
from tools.cli.site.site import Site

STEP = 41  # lines of code from one kill to the next; a prime, so that it meets each line of a loop

TASKS = ["init", "give", "give_account", "revoke", "renew"]


def run(folder: Path, task: str, step: int) -> None:
    if task != "init":
        make_site(folder, "hill")
        if task == "revoke":
            Site.open(folder).give_all([Wish("old"), Wish("older", PASSWORD)])
        if task == "renew":
            Site.open(folder).give("old")
    argv = [sys.executable, "-m", "tests.tools.cli.site.killed", str(folder), task, str(step), str(step // 2)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *faults, places = done.stdout.splitlines()
    assert faults == []
    assert int(places.removeprefix("places: ")) > 200


@pytest.mark.parametrize("task", TASKS)
def test_a_change_that_was_killed_is_completed_when_it_is_run_again(tmp_path: Path, task: str) -> None:
    run(tmp_path / "site", task, STEP)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("task", TASKS)
def test_a_change_may_be_killed_at_each_line(tmp_path: Path, task: str) -> None:
    run(tmp_path / "site", task, 1)
