"""`holdfast test`: the checkout's tox environment with its linter, type checker and tests."""

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
    tox_run = [sys.executable, "-m", "tox", "run", "--root", str(root), "-c", str(root), "-e"]
    if not (root / ".tox/py").exists():
        print("holdfast: making the tests' environment in .tox (once, some minutes)", file=sys.stderr)
    _run([*tox_run, "py", "-q", "--notest"], failure="tox could not make the tests' environment")
    if not pytest_arguments:
        _run([*tox_run, STUBS, "-q"], failure="a portable module does not fit MicroPython's type stubs")
    # Twice quiet, tox adds nothing: pytest's closing line stays the last one.
    os.execv(sys.executable, [*tox_run, "py", "-qq", "--skip-pkg-install", "--", *(pytest_arguments or [])])


def _run(command: list[str], *, failure: str) -> None:
    """Runs tox; shows what it says only when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(done.stdout, end="", file=sys.stderr)
        fail("test", failure)
