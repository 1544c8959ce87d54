"""A simulated board for every test here."""

import sys
from collections.abc import Iterator

import pytest

from tools.cli.paths import source_root

SHIM = source_root() / "tools/lab/sim/boards"
MODULES = [path.stem for path in SHIM.glob("[a-z]*.py")]


@pytest.fixture(autouse=True)
def _board() -> Iterator[None]:
    sys.path.insert(0, str(SHIM))
    yield
    sys.path.remove(str(SHIM))
    for name in MODULES:
        sys.modules.pop(name, None)
