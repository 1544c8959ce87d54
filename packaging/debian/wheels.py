"""The libraries inside the package: fetched as `wheels.txt` has them, and laid into one folder for both Pythons.

A wheel for CPython 3.11 and one for 3.13 differ in their compiled modules alone, whose names say for which Python they
are. So one folder serves Debian 12 and 13, and a machine that goes from one to the other keeps its gateway.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

LOCK = Path(__file__).resolve().parent / "wheels.txt"
PYTHONS = ("3.11", "3.13")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
GLIBCS = (36, 34, 31, 28, 27, 26, 24, 17)  # of manylinux_2_x, the newest first; Debian 12 has 2.36
SOURCES = {"sqlitedict": "sqlitedict.py"}
"""Libraries that come as source alone, and the one file of each that is the library: plain Python."""
BUILD = "setuptools"
"""What pip needs to look into a source; it is not in the package."""
LEFT_OUT = (".c", ".h", ".pxd", ".pxi", ".pyi", ".pyx", "/INSTALLER", "/RECORD", "/WHEEL")
"""What no program reads. The metadata and the licences of each library stay."""


class BuildError(Exception):
    """The package cannot be built."""


def locked(lock: Path = LOCK) -> dict[str, list[str]]:
    """Returns each library as ``name==version``, with the SHA-256 of each of its files that may be used."""
    lines = [line.split() for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    return {pin: [word.removeprefix("--hash=sha256:") for word in words] for pin, *words in lines}


def fetch(arch: str, cache: Path) -> list[Path]:
    """Returns the files of all libraries for an architecture. What the cache lacks is fetched by pip.

    Raises:
        BuildError: pip fails, or the lock has no hash for what it finds.
    """
    pins = locked()
    sources = {pin: hashes for pin, hashes in pins.items() if _name(pin) in SOURCES}
    build = {pin: hashes for pin, hashes in pins.items() if _name(pin) == BUILD}
    wheels = {pin: hashes for pin, hashes in pins.items() if pin not in sources | build}
    found = set()
    for version in PYTHONS:
        found |= {*_fetch(wheels, cache / f"{arch}-{version}", platform_of(arch, version))}
    tools = cache / "tools"
    for wheel in _fetch(build, cache / "build", ["--only-binary", ":all:"]):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tools)
    found |= {*_fetch(sources, cache / "source", ["--no-binary", ":all:", "--no-build-isolation"], tools)}
    return sorted(found)


def lay(files: Iterable[Path], folder: Path) -> None:
    """Writes what is in wheels and sources into a folder, as pip would install it for both Pythons.

    Raises BuildError: two of them have the same file with other content.
    """
    for archive in files:
        for name, content in _members(archive):
            target = folder / name
            if target.exists() and target.read_bytes() != content:
                raise BuildError(f"{archive.name}: {name} is not the same as in another wheel")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def strip(folder: Path, arch: str) -> None:
    """Takes from compiled modules what only a debugger reads: four fifths of their size. Raises BuildError."""
    command = f"{MACHINES[arch]}-linux-gnu-strip"
    modules = sorted(folder.rglob("*.so*"))
    try:
        subprocess.run([command, "--strip-unneeded", *modules], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"{error}; apt-get install binutils-{MACHINES[arch].replace('_', '-')}-linux-gnu") from error


def platform_of(arch: str, version: str) -> list[str]:
    tag = f"cp{version.replace('.', '')}"
    words = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", version]
    words += [word for abi in (tag, "abi3", "none") for word in ("--abi", abi)]
    machine = MACHINES[arch]
    platforms = [*(f"manylinux_2_{minor}_{machine}" for minor in GLIBCS), f"manylinux2014_{machine}"]
    return words + [word for one in platforms for word in ("--platform", one)]


def _fetch(pins: dict[str, list[str]], folder: Path, options: list[str], tools: Path | None = None) -> Iterator[Path]:
    """Yields a file for each library; pip fetches what the folder lacks."""
    folder.mkdir(parents=True, exist_ok=True)
    present = _by_hash(folder)
    if lacking := [pin for pin, hashes in pins.items() if present.keys().isdisjoint(hashes)]:
        wanted = folder / "wanted.txt"
        lines = (" ".join([pin, *(f"--hash=sha256:{one}" for one in pins[pin])]) for pin in lacking)
        wanted.write_text("\n".join(lines))
        pip("download", "--no-deps", "--require-hashes", "--dest", folder, *options, "-r", wanted, tools=tools)
        present = _by_hash(folder)
    for pin, hashes in pins.items():
        files = [present[one] for one in hashes if one in present]
        if len(files) != 1:
            raise BuildError(f"{folder}: expected one file of {pin}, found {len(files)}")
        yield files[0]


def pip(*words: str | Path, tools: Path | None = None) -> None:
    """Runs pip. ``tools`` is a folder with modules that it may use. Raises BuildError."""
    environment = {**os.environ, **({"PYTHONPATH": str(tools)} if tools else {})}
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    if subprocess.run(command, env=environment, check=False).returncode:
        raise BuildError(f"pip {words[0]} has failed; without pip, install the Debian package python3-pip")


def _by_hash(folder: Path) -> dict[str, Path]:
    files = (path for path in folder.iterdir() if path.suffix in (".whl", ".gz"))
    return {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in sorted(files)}


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if not name.endswith(("/", *LEFT_OUT)) and "/sboms/" not in name and ".data/" not in name:
                    yield name, wheel.read(name)
        return
    with tarfile.open(archive) as source:
        top = archive.name.removesuffix(".tar.gz")
        library = top.rpartition("-")[0]
        for inside, name in ((SOURCES[library], SOURCES[library]), ("PKG-INFO", f"{top}.dist-info/METADATA")):
            file = source.extractfile(f"{top}/{inside}")
            assert file is not None, "a file and no folder"
            yield name, file.read()


def _name(pin: str) -> str:
    return pin.partition("==")[0]
