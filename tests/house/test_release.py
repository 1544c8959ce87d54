"""A release has one version number, and notes. docs/how-to/release.md says how it is made."""

import re
import subprocess
import sys
from pathlib import Path

from tests.house.extras import PROJECT
from tests.house.repository import ROOT

HEADINGS = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+) \(\d{4}-\d\d-\d\d\)")


def numbers(heading: str) -> tuple[int, ...]:
    found = RELEASE.fullmatch(heading)
    assert found, f"CHANGELOG.md: '## {heading}', expected '## MAJOR.MINOR.PATCH (YYYY-MM-DD)'"
    return tuple(int(number) for number in found.groups())


def test_changelog_has_the_unreleased_changes_first_and_then_the_newest_release() -> None:
    unreleased, *releases = HEADINGS
    assert unreleased == "Unreleased"
    versions = [numbers(heading) for heading in releases]
    assert versions == sorted(set(versions), reverse=True)


def test_project_command_and_changelog_name_the_same_version() -> None:
    command = Path(sys.executable).parent / "holdfast"
    done = subprocess.run([command, "--version"], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == f"holdfast {PROJECT['project']['version']}\n"
    assert HEADINGS[1].startswith(f"{PROJECT['project']['version']} (")


def test_every_release_has_notes() -> None:
    _, *releases = re.split(r"^## .+$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    assert [len(notes.strip()) > 100 for notes in releases] == [True] * len(releases)
