#!/usr/bin/env python3
"""Renews `cloud.txt`: the files of the libraries of the extra `cloud`, in the versions of `constraints/python3.txt`.

usage: packaging/container/lock.py
"""

import hashlib
import json
import re
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "packaging/debian"))

from wheels import MACHINES, pip, platform_of  # noqa: E402 - found by the path above

CONSTRAINTS = ROOT / "constraints/python3.txt"
LOCK = HERE / "cloud.txt"
PYTHON = "3.13"
SOURCE = "pyspark"
"""It comes as source alone; what is in it runs on each machine."""
HEADER = """\
# The libraries of lander and job in the image `cloud`, in the versions of constraints/python3.txt, with the SHA-256 of
# each file that the build may use: for CPython 3.13, on amd64 and arm64. packaging/container/lock.py writes this file.
"""


def main() -> None:
    found: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        pins = resolved(Path(name, "report.json"))
        source = next(pin for pin in pins if pin.startswith(f"{SOURCE}=="))
        wheels = [pin for pin in pins if pin != source]
        for arch in MACHINES:
            pip("download", "--no-deps", "--dest", Path(name, arch), *platform_of(arch, PYTHON), *wheels)
        pip("download", "--no-deps", "--no-binary", ":all:", "--dest", Path(name, "source"), source)
        by_name = {pin.replace("-", "_"): pin for pin in pins}
        for file in (one for one in Path(name).rglob("*") if one.suffix in (".whl", ".gz")):
            library, version = file.name.removesuffix(".tar.gz").split("-")[:2]
            pin = by_name[f"{library.lower().replace('.', '_')}=={version}".replace("-", "_")]
            found.setdefault(pin, set()).add(hashlib.sha256(file.read_bytes()).hexdigest())
    lines = (" ".join([pin, *(f"--hash=sha256:{one}" for one in sorted(found[pin]))]) for pin in pins)
    LOCK.write_text(HEADER + "".join(f"{line}\n" for line in lines))


def resolved(report: Path) -> list[str]:
    """Returns all that the extra needs, as ``name==version``, by the Python that runs this. Raises BuildError."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["cloud"]]
    pip("install", "--dry-run", "--ignore-installed", "--report", report, "-c", CONSTRAINTS, *wanted)
    found = (one["metadata"] for one in json.loads(report.read_text())["install"])
    return sorted(f"{re.sub(r'[-_.]+', '-', one['name']).lower()}=={one['version']}" for one in found)


if __name__ == "__main__":
    main()
