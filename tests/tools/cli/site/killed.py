"""Kills a change of a site at each line of our code that it runs, and looks at what is left.

``killed.py FOLDER TASK STEP FIRST``: copies the site in FOLDER once for each place, every STEP-th from FIRST on, and
has a child run TASK there until it comes to that place. It prints the number of places, and a line for each thing that
is wrong. The children are made by fork, so this is a process of its own without threads.
"""

import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from gateway.auth.accounts import load_accounts
from host.files import LOCK_FILE
from tests.house.repository import ROOT
from tools.cli.paths import memory_folder
from tools.cli.site.commands.looking import listed, strays
from tools.cli.site.errors import NameTaken, SiteError
from tools.cli.site.given import CERTIFICATE_FILE, KEY_FILE, PASSWORD_FILE
from tools.cli.site.giving import Wish
from tools.cli.site.ledger import GIVEN, PASSWORD, read_lines
from tools.cli.site.making import make_site
from tools.cli.site.rules import names_in
from tools.cli.site.site import Site

OURS = tuple(str(ROOT / one) for one in ("tools/cli/site", "host", "gateway/auth", "gateway/store"))
NAMES = ("attic", "cellar")


def init(folder: Path) -> None:
    make_site(folder, "hill")


def give(folder: Path) -> None:
    Site.open(folder).give_all([Wish(name) for name in NAMES])


def give_account(folder: Path) -> None:
    Site.open(folder).give("attic", PASSWORD)


def revoke(folder: Path) -> None:
    """Ends what the site has of old; run again, it says that nothing is left."""
    site = Site.open(folder)
    if any(line.is_open or line.state == "ending" for line in site.lines().values()):
        site.revoke([name for name in ("old", "older") if is_open(site, name)])


def is_open(site: Site, name: str) -> bool:
    return any(line.name == name and line.is_open for line in site.lines().values())


def renew(folder: Path) -> None:
    """Renews what the site has of old, unless that is done."""
    site = Site.open(folder)
    if not any(line.name == "old" and line.state == "replaced" for line in site.lines().values()):
        site.renew(["old"])


TASKS: dict[str, Callable[[Path], None]] = {
    "init": init,
    "give": give,
    "give_account": give_account,
    "revoke": revoke,
    "renew": renew,
}

EXPECTED = {
    "init": [],
    "give": ["attic", "cellar", "next"],
    "give_account": ["attic", "next"],
    "revoke": [],
    "renew": ["old"],
}


def kill_at(place: int, task: Callable[[], None]) -> bool:
    """Runs a task in a child that is killed at the line of that number; returns whether it came so far."""
    child = os.fork()
    if child == 0:
        left = place

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.startswith(OURS):
                return None
            left -= event == "line"
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        try:
            task()
        except BaseException:
            traceback.print_exc()
            os.abort()
        sys.settrace(None)
        os.execv("/bin/true", ["true"])  # nothing of the parent's is tidied up
    _, status = os.waitpid(child, 0)
    was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if not was_killed and status != 0:
        raise RuntimeError(f"the task failed by itself at {place}")
    return was_killed


def faults(folder: Path, task: str) -> list[str]:
    """What is wrong after a kill, before and after the same task was run again."""
    found = list(before(folder)) if folder.exists() else []
    try:
        TASKS[task](folder)
    except SiteError as error:  # it was killed behind its last step: it says that all was done
        done = task == "init" or all(line.state == GIVEN for line in read_lines(folder).values())
        if not done or not ("it is a site already" in str(error) or isinstance(error, NameTaken)):
            found.append(f"run again: {error}")
    site = Site.open(folder)
    if task.startswith("give"):
        site.give("next")  # what others do goes on
    current = [one for one in listed(site) if one.line.state != "replaced"]
    found += [f"after: {one.line.name}: {text}" for one in current for text in one.problems]
    found += [f"after: {text}" for text in strays(site)]
    expected = EXPECTED[task]
    given = [line.name for line in site.lines().values() if line.state == GIVEN]
    if sorted(given) != expected:
        found.append(f"after: given to {given}")
    for name in given:
        if site.find(name) is None:
            found.append(f"after: {name} is not found")
    hidden = (*folder.rglob(".*"), *folder.parent.glob(".*"))
    left = [str(path) for path in hidden if path.name != LOCK_FILE]
    if left:
        found.append(f"after: {left} are left")
    if task == "revoke" and any(site.places.devices.iterdir()):
        found.append("after: a key is left")
    return found


def before(folder: Path) -> list[str]:
    """Whether keys without a line are there, or lines that claim what is not there."""
    site = Site.open(folder)
    lines = read_lines(folder).values()
    names = {line.name for line in lines if line.state != "revoked"}
    found = [f"{path} has no line" for path in site.places.devices.iterdir() if name_of(path) not in names]
    secret = [path for path in folder.rglob("*") if path.name in (KEY_FILE, PASSWORD_FILE, "accounts", "authority.key")]
    found += [f"{path} is open" for path in secret if path.stat().st_mode & 0o077]
    rules = names_in(site.places.access.read_text())
    for line in (line for line in lines if line.state == GIVEN):
        if line.name not in rules or (line.kind == PASSWORD) != (line.name in load_accounts(site.places.accounts)):
            found.append(f"{line.name} is given without rules or account")
        file = PASSWORD_FILE if line.kind == PASSWORD else CERTIFICATE_FILE
        is_renewing = any(one.name == line.name and one.state == "begun" for one in lines)
        if not is_renewing and not (site.places.of(line) / file).exists():
            found.append(f"{line.name} is given without files")
    return found


def name_of(path: Path) -> str:
    """The device whose folder, or unfinished folder, this is."""
    return path.name.removeprefix(".").removesuffix(".making")


def main(folder: Path, task: str, step: int, first: int) -> None:
    with tempfile.TemporaryDirectory(dir=memory_folder()) as above:
        try_all(folder, Path(above) / "work", task, step, first)


def try_all(folder: Path, work: Path, task: str, step: int, first: int) -> None:
    place = first
    while True:
        work.mkdir()
        site = work / "site"
        if task != "init":
            shutil.copytree(folder, site)
        was_killed = kill_at(place, lambda: TASKS[task](site))  # noqa: B023 - it is called at once
        for fault in faults(site, task):
            print(f"killed at {place}: {fault}")
        shutil.rmtree(work)
        if not was_killed:
            print(f"places: {place}")
            return
        place += step


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
