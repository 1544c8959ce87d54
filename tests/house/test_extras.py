"""Each command has what it imports: by the table of commands, by the launcher, and as its page says."""

import re
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from sys import stdlib_module_names

import pytest
from packaging.utils import canonicalize_name

from tests.house.extras import EXTRAS, NEEDS_ALL_EXTRAS, brought_by, included
from tests.house.repository import FOLDERS, PORTABLE_FOLDERS, ROOT, imports, read
from tools.cli.commands import COMMANDS

CONFIGURED = {"proton", "nacl"}  # what only some routes need, by an extra of its own; the gateway runs without it
EVERYWHERE = {"pip"}  # in each virtual environment
SIMULATED = {path.stem for path in (ROOT / "tools/lab/sim/boards").glob("*.py")}  # a board's modules
ON_A_BOARD = ("tools.lab.sim.boards.", "tools.lab.sim.firmware.")  # what MicroPython runs, besides the portable folders
RUN = re.compile(r'(?:"-m",|(?<![\w.])python\()\s*"([\w.]+)"')
RUN_OURSELVES = re.compile(r"(?<!def )(?<![\w.])holdfast\(")
OURSELVES = "tools.cli.main"  # where a command starts it, then to run a gateway, or more that "tools" brings


def source(module: str) -> Path | None:
    """The file of one of our modules; None if there is no such module."""
    path = ROOT / module.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def distributions() -> Mapping[str, list[str]]:
    """The distributions that bring each package."""
    return packages_distributions()


@cache
def named(path: Path) -> frozenset[str]:
    """The modules that a file imports, anywhere in it, or runs in a process of their own."""
    found = {module for _, module in imports(path)}
    found |= {package for module in found if (package := module.rpartition(".")[0])}
    found.update(RUN.findall(read(path)))
    return frozenset(found | {OURSELVES} if RUN_OURSELVES.search(read(path)) else found)


@cache
def needed_by(command: str) -> set[str]:
    """The distributions of everything that a command imports, in its own process and in processes that it starts."""
    todo = [COMMANDS[command].target.partition(":")[0]]
    seen, needed = set[str](), set[str]()
    while todo:
        module = todo.pop()
        path = source(module)
        if path is None or module in seen or module == OURSELVES:
            continue
        seen.add(module)
        for name in named(path):
            folder = name.partition(".")[0]
            if name == OURSELVES:
                todo.append(COMMANDS["gateway run"].target.partition(":")[0])
            elif folder in FOLDERS:
                todo.append(name)
            elif folder not in stdlib_module_names | CONFIGURED | EVERYWHERE | SIMULATED and (
                module.partition(".")[0] not in PORTABLE_FOLDERS and not module.startswith(ON_A_BOARD)
            ):
                needed.add(canonicalize_name(distributions()[folder][0]))
    return needed


def installed_by_the_launcher(command: str) -> set[str]:
    """The extras that the launcher's own table names for the command."""
    text = (ROOT / "holdfast").read_text()
    choose = re.search(r"^case .*?^esac$", text, re.MULTILINE | re.DOTALL)
    assert choose is not None
    program = f'set -eu; {choose[0]}; echo "$extras"'
    done = subprocess.run(["sh", "-c", program, "sh", *command.split()], stdout=subprocess.PIPE, text=True, check=True)
    return set(filter(None, done.stdout.strip().split(",")))


def named_by_the_page(command: str) -> str:
    text = (ROOT / "docs/reference/commands.md").read_text()
    rows = re.findall(r"^\| ((?:`[a-z -]+`(?:, )?)+) \| (?:`holdfast-iot\[(\w+)\]`|none) \|$", text, re.MULTILINE)
    (found,) = [extra for commands, extra in rows if f"`{command}`" in commands]
    return str(found)


@NEEDS_ALL_EXTRAS
@pytest.mark.parametrize("command", COMMANDS)
def test_command_has_all_that_it_imports_and_no_extra_where_that_is_nothing(command: str) -> None:
    extra = COMMANDS[command].extra
    assert needed_by(command) - brought_by(extra) == set()
    assert (needed_by(command) <= brought_by("")) == (extra == "")


@pytest.mark.parametrize("command", COMMANDS)
def test_launcher_installs_what_the_command_needs(command: str) -> None:
    assert installed_by_the_launcher(command) == included(COMMANDS[command].extra)


@pytest.mark.parametrize("command", COMMANDS)
def test_page_of_commands_names_the_extra_that_the_command_needs(command: str) -> None:
    assert named_by_the_page(command) == COMMANDS[command].extra


def test_every_extra_exists() -> None:
    assert {command.extra for command in COMMANDS.values()} <= {*EXTRAS, ""}
