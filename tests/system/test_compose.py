"""The site of `compose.yaml` is what Compose reads, with images that the build makes and configurations that work."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.house.extras import NEEDS_ALL_EXTRAS, brought_by
from tests.house.repository import ROOT
from tools.cli.gateway.config import read_configuration

CONTAINER = ROOT / "packaging/container"
COMPOSE = CONTAINER / "compose.yaml"


def test_compose_takes_the_file() -> None:
    """By the schema of the Compose specification, which comes with check-jsonschema."""
    if shutil.which("check-jsonschema") is None:
        pytest.skip("there is no check-jsonschema")
    command: list[str | Path] = ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_images_have_the_names_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    names = re.findall(r"image: (holdfast-\S+)", COMPOSE.read_text())
    assert set(names) == {f"holdfast-gateway:{version}", f"holdfast-cloud:{version}"}


@NEEDS_ALL_EXTRAS
def test_the_lock_has_all_that_lander_and_job_need() -> None:
    lines = [line.partition("==")[0] for line in (CONTAINER / "cloud.txt").read_text().splitlines() if "==" in line]
    assert brought_by("cloud") - {canonicalize_name(name) for name in lines} == set()


def test_each_file_that_is_mounted_is_there() -> None:
    files = re.findall(r"- \./(\S+?):", COMPOSE.read_text())
    assert files and [file for file in files if not (CONTAINER / file).is_file()] == []


@pytest.mark.parametrize("file", ["program/gateway.toml", "site/gateway.toml"])
def test_a_gateway_could_start_with_the_first_configuration(tmp_path: Path, file: str) -> None:
    text = (CONTAINER / file).read_text().replace("@NAME@", "here").replace("/var/lib/holdfast", str(tmp_path))
    for name in ("accounts", "access"):
        (tmp_path / name).touch(mode=0o600)
    (tmp_path / "gateway.toml").write_text(text)
    assert "volatile" not in tomllib.loads(text)["store"]
    assert len(read_configuration(tmp_path / "gateway.toml").routes) == text.count("[[route]]")
