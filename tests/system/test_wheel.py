"""The wheel as pip installs it, beside projects that have packages of the same names."""

import base64
import csv
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.cloud.messages import land, row
from tools.cli.paths import source_root

OTHERS = ("tools==1.0.38", "uplink==0.10.0")  # of PyPI, each with a package of that name
CONFIG = """
name = "here"

[store]
path = "store"
volatile = true

[[listener]]
kind = "tcp"

[[route]]
name = "central"
broker = "mqtt://127.0.0.1:1883"
"""
INGEST = """
from importlib.util import find_spec

from cloud import ingest

print(ingest(None, "landing", "tables").new)
for name in ("cloud", "tools", "uplink"):
    print(find_spec(name).origin)
"""


def pip(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *words], check=True)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and the others. What they need comes from this one."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--wheel-dir", folder, source_root())
    made = folder / "venv"
    venv.create(made, symlinks=True)
    pip("--python", made / "bin/python", "install", "--no-deps", *OTHERS)
    pip("--python", made / "bin/python", "install", "--no-deps", *folder.glob("*.whl"))
    needed = [one for one in sys.path if Path(one).name == "site-packages"]
    (packages_of(made) / "needed.pth").write_text("\n".join(needed))
    return made


def run(folder: Path, *command: str | Path) -> "subprocess.CompletedProcess[str]":
    """Runs a command of the environment as a user does: a Spark session of this process has set a path for modules."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=variables)


def packages_of(environment: Path) -> Path:
    (packages,) = environment.glob("lib/python3*/site-packages")
    return packages


def test_no_file_of_another_project_is_changed(environment: Path) -> None:
    packages = packages_of(environment)
    records = [packages / f"{one.replace('==', '-')}.dist-info/RECORD" for one in OTHERS]
    rows = [row for record in records for row in csv.reader(record.read_text().splitlines()) if row[1]]
    assert {name.partition("/")[0] for name, _, _ in rows} >= {"tools", "uplink"}
    for name, hashed, _ in rows:
        digest = hashlib.sha256((packages / name).read_bytes()).digest()
        assert hashed == "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("="), name


def test_command_uses_its_own_packages(environment: Path, tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(CONFIG)
    done = run(tmp_path, environment / "bin/holdfast", "gateway", "check-config", config)
    assert done.returncode == 0, done.stderr


def test_program_imports_ours_in_spark_too_and_the_other_projects_packages_stay_theirs(
    environment: Path, tmp_path: Path
) -> None:
    (tmp_path / "landing").mkdir()
    land(tmp_path / "landing", [row(seq) for seq in range(1, 9)])
    done = run(tmp_path, environment / "bin/python", "-c", INGEST)
    assert done.returncode == 0, done.stderr
    packages = packages_of(environment)
    ours = packages / "holdfast_iot/cloud/__init__.py"
    theirs = [packages / f"{name}/__init__.py" for name in ("tools", "uplink")]
    assert done.stdout.splitlines()[-4:] == ["8", *map(str, [ours, *theirs])]
