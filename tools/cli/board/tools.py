"""The makers' tools: whether they are installed, and new enough."""

import re
from collections.abc import Callable
from importlib import metadata

from tools.cli.board.errors import Refused

LEAST = {"esptool": (5,), "mpremote": (1, 24)}  # as the extra `flash` has them


def check_tools(version_of: Callable[[str], str] = metadata.version) -> None:
    """Looks for the tools before anything is written.

    Raises:
        ModuleNotFoundError: one is not installed; `error.name` is its name.
        Refused: one is too old.
    """
    for name, least in LEAST.items():
        try:
            found = version_of(name)
        except metadata.PackageNotFoundError as error:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name) from error
        if tuple(map(int, re.findall(r"\d+", found)[: len(least)])) < least:
            expected = ".".join(map(str, least))
            raise Refused(f"{name} has the version {found}, expected {expected} or later: pip install --upgrade {name}")
