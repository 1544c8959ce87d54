"""What each extra of the distribution brings."""

import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.repository import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
NEEDS_ALL_EXTRAS = pytest.mark.skipif(find_spec("pyspark") is None, reason="needs the extras tools and dev")


@cache
def included(extra: str) -> frozenset[str]:
    """The extra and the extras that it includes; none for ""."""
    own = [Requirement(line) for line in EXTRAS.get(extra, ())]
    others = [other for requirement in own if requirement.name == "holdfast-iot" for other in requirement.extras]
    return frozenset({extra} - {""}).union(*map(included, others))


@cache
def brought_by(extra: str) -> frozenset[str]:
    """The name of every distribution that is there with the extra ("" for none), brought directly or not."""
    lines = [line for one in included(extra) for line in EXTRAS[one]]
    todo = [Requirement(line) for line in (*PROJECT["project"]["dependencies"], *lines)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        requirement = todo.pop()
        distribution, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (distribution, extras) not in seen and distribution != "holdfast-iot":
            seen.add((distribution, extras))
            todo += [found for found in map(Requirement, _required_by(distribution)) if _is_wanted(found, extras)]
    return frozenset(distribution for distribution, _ in seen)


def _required_by(distribution: str) -> list[str]:
    try:
        return requires(distribution) or []
    except PackageNotFoundError:  # it is for other Pythons than this one
        return []


def _is_wanted(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(
        marker.evaluate({"extra": extra, "python_version": python, "python_full_version": f"{python}.5"})
        for python in PYTHONS
        for extra in {"", *extras}
    )
