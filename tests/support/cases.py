"""Inputs from the field, which lie beside the repository and not in it: `../shared/cases`."""

from pathlib import Path

import pytest

from tools.cli.paths import source_root

CASES = source_root().parent / "shared/cases"


def find_cases(*parts: str) -> Path:
    """Returns a file or folder of the cases. Skips the test where it is absent."""
    place = CASES.joinpath(*parts)
    if not place.exists():
        pytest.skip(f"the inputs from the field are not here: {place}")
    return place
