#!/usr/bin/env python3
"""Renews `wheels.txt`: the files of the libraries of EXTRAS, in the versions of `constraints/python3.txt`.

usage: packaging/debian/lock.py
"""

import hashlib
import tempfile
import tomllib
from pathlib import Path

from wheels import BUILD, LOCK, MACHINES, PYTHONS, SOURCES, pip, platform_of

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "constraints/python3.txt"
EXTRAS = ("gateway", "receipts")
BUILD_VERSION = "80.9.0"
HEADER = """\
# The libraries inside the Debian package, in the versions of constraints/python3.txt, with the SHA-256 of each file
# that the build may use: for CPython 3.11 and 3.13, on amd64 and arm64. `packaging/debian/lock.py` writes this file.
"""


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(line for one in EXTRAS for line in project["optional-dependencies"][one])]
    wheels = [one for one in wanted if not one.startswith(tuple(SOURCES))]
    hashes: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        for arch in MACHINES:
            for version in PYTHONS:
                folder = Path(name, f"{arch}-{version}")
                pip("download", "--dest", folder, "-c", CONSTRAINTS, *platform_of(arch, version), *wheels)
        sources = [line for line in CONSTRAINTS.read_text().splitlines() if line.startswith(tuple(SOURCES))]
        pip("download", "--no-deps", "--dest", Path(name, "source"), "--no-binary", ":all:", *sources)
        pip("download", "--no-deps", "--dest", Path(name, "build"), f"{BUILD}=={BUILD_VERSION}")
        for file in Path(name).rglob("*"):
            if file.suffix in (".whl", ".gz"):
                hashes.setdefault(_pin(file), set()).add(hashlib.sha256(file.read_bytes()).hexdigest())
    pins = sorted(hashes, key=str.lower)
    lines = (" ".join([pin, *(f"--hash=sha256:{one}" for one in sorted(hashes[pin]))]) for pin in pins)
    LOCK.write_text(HEADER + "".join(f"{line}\n" for line in lines))


def _pin(file: Path) -> str:
    """Returns the library of a file, with its version."""
    library, version, *_ = file.name.removesuffix(".tar.gz").removesuffix(".whl").split("-")
    pins = {line.replace("-", "_").replace(".", "_").lower(): line for line in CONSTRAINTS.read_text().splitlines()}
    return pins.get(f"{library}=={version}".replace("-", "_").replace(".", "_").lower(), f"{library}=={version}")


if __name__ == "__main__":
    main()
