"""The pages agree with the command, with each other and with the files they point to."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.house.extras import NEEDS_ALL_EXTRAS
from tests.house.repository import FOLDERS, ROOT, name, pages, parse
from tools.cli.commands import COMMANDS
from tools.cli.main import load

COMMAND_PAGES = ROOT / "docs/reference/commands"
CODE_LINK = re.compile(r"\[`([\w.]+)`\]\(([^()\s]+\.py)\)")
LINK = re.compile(r"\]\(([^()\s]+)\)")
SHELL_BLOCK = re.compile(r"^ *```(?:sh|console)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"^\s*(?:\$ )?(?:sudo (?:-u holdfast )?)?(?:\./|/opt/holdfast\S*/bin/)?(?=holdfast\b)")

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ +(.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    for link in LINK.findall(page.read_text()):
        if re.match(r"https?:|mailto:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file) if file else page
        if not target.exists():
            yield f"{name(page)}: {link} leads nowhere"
        elif anchor and anchor not in anchors(target):
            yield f"{name(page)}: {link}: the page has no such heading"


def names_in(module: Path) -> set[str]:
    """What a module defines: functions and classes, and methods as `Class.method`."""
    found = set()
    for node in parse(module).body:
        if isinstance(node, ast.ClassDef):
            found |= {node.name} | {f"{node.name}.{one.name}" for one in node.body if isinstance(one, _FUNCTIONS)}
        elif isinstance(node, _FUNCTIONS):
            found.add(node.name)
    return found


def options(command: str) -> set[str]:
    parameters: list[Any] = load(COMMANDS[command]).params
    return {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}


def long_options(command: str) -> set[str]:
    return {option for option in options(command) if option.startswith("--")} - {"--help"}


def section(command: str) -> str:
    """The text below the command's heading, on the page of its group, its own page, or the one without a group."""
    page = COMMAND_PAGES / f"{command.removeprefix('lab ').split()[0]}.md"
    page = page if page.exists() else COMMAND_PAGES / "general.md"
    _, found, rest = page.read_text().partition(f"\n## holdfast {command}\n")
    assert found, f"{name(page)} has no heading '## holdfast {command}'"
    return rest.partition("\n## ")[0]


def shown_commands(page: Path) -> Iterator[list[str]]:
    """The words behind `holdfast` of each command line in the page's shell blocks."""
    for block in SHELL_BLOCK.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            if called := CALL.match(line):
                yield shlex.split(line[called.end() :], comments=True)[1:]


@pytest.mark.parametrize("page", pages(), ids=name)
def test_code_that_a_link_names_is_in_its_file(page: Path) -> None:
    named = CODE_LINK.findall(page.read_text())
    assert [(code, file) for code, file in named if code not in names_in((page.parent / file).resolve())] == []


def test_the_figures_that_matter_are_rows_of_the_page_with_all_of_them() -> None:
    figures = ROOT / "docs/reference/figures.md"
    rows = re.findall(r"^\| [^|]+ \| [\d,.]+ \|.*\|$", figures.read_text(), re.MULTILINE)
    assert len(rows) == 8
    assert set(rows) <= set(figures.with_name("figures-gateway.md").read_text().splitlines())


@pytest.mark.parametrize("package", ["gateway", "gateway/store", "uplink"])
def test_the_page_of_the_architecture_has_each_folder_of_a_package_and_no_other(package: str) -> None:
    page = (ROOT / "docs/explanation/architecture.md").read_text()
    floors = re.findall(r"^```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (listed,) = [one for one in floors if one.startswith({"gateway": "floor "}.get(package, f"{package}/\n"))]
    folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    assert set(re.findall(r"^ .{0,8}?\b([a-z_0-9]+)/ ", listed, re.MULTILINE)) == folders


def reports() -> list[str]:
    """The rows of the page of others' failures."""
    page = (ROOT / "docs/explanation/failures-of-others.md").read_text()
    return re.findall(r"^\| \[.+\|$", page, re.MULTILINE)


@pytest.mark.parametrize("row", reports(), ids=lambda row: row.partition("]")[0].removeprefix("| ["))
def test_each_failure_of_others_has_its_report_and_a_test_or_says_that_there_is_none(row: str) -> None:
    report, failed, answer = row.strip("| ").split(" | ")
    assert re.search(r"\]\(https://github\.com/[\w.-]+/[\w.-]+/issues/\d+\)", report) and failed
    tests = [code for code, _ in CODE_LINK.findall(answer)]  # that they exist, the check of all such links says
    assert all(test.startswith("test_") for test in tests)
    assert tests or re.search(r"none yet|the sample with|the same test", answer)


def test_the_walk_through_the_gateway_leads_through_seventeen_files_in_order() -> None:
    steps = re.findall(r"^\*\*(\d+)\. `([\w./]+)`", (ROOT / "docs/explanation/gateway.md").read_text(), re.MULTILINE)
    assert [int(number) for number, _ in steps] == list(range(1, 18))
    assert [file for _, file in steps if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize("page", pages(), ids=name)
def test_paths_in_the_text_exist(page: Path) -> None:
    named = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]+)`", page.read_text())
    to_be_written = {"device/sensors/bh1750.py", "tools/lab/sim/chips/bh1750.py"}  # by the reader, to add a sensor
    found = [path for path in named if (ROOT / path).exists() or (ROOT / f"{path}.py").exists()]
    assert set(named) - set(found) - to_be_written == set()


@pytest.mark.parametrize("page", pages(), ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_index_leads_to_every_page() -> None:
    index = ROOT / "docs/README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text())}
    assert [name(page) for page in pages() if name(page).startswith("docs/") and page not in {*linked, index}] == []


@NEEDS_ALL_EXTRAS
@pytest.mark.parametrize("command", COMMANDS)
def test_command_and_its_options_are_documented_and_no_others(command: str) -> None:
    documented = set(re.findall(r"^\| `(?:-\w, )?(--[\w-]+)", section(command), re.MULTILINE))
    documented |= set(re.findall(r"^\| `[^`|]*?/ ?(--[\w-]+)", section(command), re.MULTILINE))
    assert documented == long_options(command)


def test_no_other_command_is_documented() -> None:
    texts = [page.read_text() for page in COMMAND_PAGES.glob("*.md")]
    headings = [one for text in texts for one in re.findall(r"^## holdfast (.+)$", text, re.MULTILINE)]
    assert sorted(headings) == sorted(COMMANDS)


def test_the_index_of_commands_leads_to_each_of_them() -> None:
    index = (ROOT / "docs/reference/commands.md").read_text()
    linked = re.findall(r"\(commands/\w+\.md#holdfast-([\w-]+)\)", index.partition("| exit code |")[0])
    assert sorted(linked) == sorted(command.replace(" ", "-") for command in COMMANDS)


@NEEDS_ALL_EXTRAS
@pytest.mark.parametrize("page", pages(), ids=name)
def test_shown_command_lines_name_commands_and_options_that_exist(page: Path) -> None:
    for words in shown_commands(page):
        if not words or words[0].startswith("--"):
            assert words in ([], ["--help"], ["--version"])
            continue
        command = next((one for one in COMMANDS if words[: one.count(" ") + 1] == one.split()), "")
        assert command, f"{name(page)} shows 'holdfast {' '.join(words)}'"
        used = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--help"}
        if command != "lab test":  # pytest's own options follow
            assert used <= long_options(command), f"{name(page)} shows 'holdfast {' '.join(words)}'"
