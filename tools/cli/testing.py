"""`holdfast lab test`: the checkout's tox environment with its linter, type checker and tests."""

import os
import subprocess
import sys
from typing import Annotated

import typer

from tools.cli.failure import fail
from tools.cli.paths import source_root

STUBS = "stubs-esp32,stubs-rp2"

app = typer.Typer(add_completion=False)


@app.command("test", context_settings={"ignore_unknown_options": True})
def run_tests(
    pytest_arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="PYTEST ARGUMENTS", help="Arguments for pytest, as in: tests/wire -k topics"),
    ] = None,
) -> None:
    """Check style and types and run the tests, in an environment that tox makes."""
    import tox  # noqa: F401  (so that a missing tox is named like any missing library)

    root = source_root()
    if not (root / "tox.ini").exists():
        fail("test", f"the tests are in Holdfast's repository, and {root} is no checkout of it")
    tox_run = [sys.executable, "-P", "-m", "tox", "run", "--root", str(root), "-c", str(root), "-e"]
    if not (root / ".tox/py").exists():
        print("holdfast: making the tests' environment in .tox (once, some minutes)", file=sys.stderr)
    ways = {"py": "tox could not make the tests' environment"}
    if not pytest_arguments:
        ways[STUBS] = "a portable module does not fit MicroPython's type stubs"
    _run({failure: [*tox_run, names, "-q", *["--notest"] * (names == "py")] for names, failure in ways.items()})
    # Twice quiet, tox adds nothing: pytest's closing line stays the last one.
    os.execv(sys.executable, [*tox_run, "py", "-qq", "--skip-pkg-install", "--", *(pytest_arguments or [])])


def _run(commands: dict[str, list[str]]) -> None:
    """Runs several of tox at once, by the text for its failure; shows what one says only when it fails."""
    running = {
        failure: subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for failure, command in commands.items()
    }
    ended = {failure: (process.communicate()[0], process.returncode) for failure, process in running.items()}
    for failure, (said, code) in ended.items():
        if code:
            print(said, end="", file=sys.stderr)
            fail("test", failure)
