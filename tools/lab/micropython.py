"""A real MicroPython (the unix port) on this machine.

The system's own is taken where there is one. Elsewhere the distribution's package and the libraries it needs are
fetched with apt into a private folder of the cache, without root and with apt's signature checks, and started with
their own dynamic loader: Ubuntu has the package itself, every Debian is served from Debian 13.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.cli.paths import cache_directory, source_root

OLDEST_VERSION = (1, 22)
DEBIAN_SUITE = "trixie"  # Debian 13, the first stable release with a MicroPython new enough
DEBIAN_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
APT_TIMEOUT_S = 300
START_TIMEOUT_S = 30

# dpkg's architecture: (folder of the libraries, name of the dynamic loader)
LOADERS = {
    "amd64": ("x86_64-linux-gnu", "ld-linux-x86-64.so.2"),
    "arm64": ("aarch64-linux-gnu", "ld-linux-aarch64.so.1"),
    "i386": ("i386-linux-gnu", "ld-linux.so.2"),
}
FOR_32_BITS = {"amd64": "i386", "i386": "i386"}
# Containers have apt keep no cache of the packages: then each of its commands reads all their descriptions anew.
APT_OPTIONS = """\
Dir::State "{home}/state";
Dir::Cache "{home}/cache";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "srcpkgcache.bin";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "20";
APT::Sandbox::User "{user}";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"""
OWN_SOURCES_OPTIONS = """\
Dir::Etc::SourceList "{home}/sources.list";
Dir::Etc::SourceParts "/dev/null";
APT::Update::Error-Mode "any";
"""
VERSION_PROGRAM = "import sys; print(sys.implementation.name, *sys.implementation.version[:3])"


class MicroPythonUnavailable(Exception):
    """There is no MicroPython here and none can be fetched; the text says why."""


@dataclass(frozen=True)
class MicroPython:
    """How to start a real MicroPython: `argv` comes before its own arguments, `version` reads like "1.25.0"."""

    argv: list[str]
    version: str

    def environment(self) -> dict[str, str]:
        """This process's environment with our packages and the VM's frozen modules (asyncio) on its import path."""
        return {**os.environ, "MICROPYPATH": f"{source_root()}:.frozen"}


def find() -> MicroPython:
    """The system's MicroPython, else the cached one, else one fetched now (a few seconds).

    Raises MicroPythonUnavailable with the reason.
    """
    installed = shutil.which("micropython")
    if installed and (version := _version([installed])):
        return MicroPython([installed], version)
    home = cache_directory() / "micropython"
    try:
        return _cached(home) or _fetch_once(home)
    except OSError as error:
        raise MicroPythonUnavailable(f"cannot keep MicroPython in {home}: {error}") from error


def find_32_bit() -> MicroPython:
    """A MicroPython whose words have 32 bits, as on most boards: cached, or fetched now.

    Raises MicroPythonUnavailable with the reason, on any machine but a Debian for x86.
    """
    home = cache_directory() / "micropython-32-bit"
    try:
        return _cached(home) or _fetch_once(home, FOR_32_BITS)
    except OSError as error:
        raise MicroPythonUnavailable(f"cannot keep MicroPython in {home}: {error}") from error


def _cached(home: Path) -> MicroPython | None:
    for folder, loader_name in LOADERS.values():
        for libraries in (home / "usr/lib" / folder, home / "lib" / folder):
            loader = libraries / loader_name
            if loader.exists():
                argv = [str(loader), "--library-path", str(libraries), str(home / "usr/bin/micropython")]
                version = _version(argv)
                return MicroPython(argv, version) if version else None
    return None


def _fetch_once(home: Path, stand_ins: dict[str, str] | None = None) -> MicroPython:
    with _locked(home.with_suffix(".lock")):
        if found := _cached(home):  # another process fetched it while this one waited
            return found
        with tempfile.TemporaryDirectory(prefix="micropython.", dir=home.parent) as scratch:
            made = _fetch(Path(scratch), stand_ins)
            if not _cached(made):
                raise MicroPythonUnavailable("the MicroPython that apt fetched does not start, or is older than 1.22")
            shutil.rmtree(home, ignore_errors=True)
            made.rename(home)
    if found := _cached(home):
        return found
    raise MicroPythonUnavailable(f"the MicroPython in {home} does not start")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(scratch: Path, stand_ins: dict[str, str] | None) -> Path:
    """Fetches and unpacks the packages below `scratch`; returns the folder that is their root.

    `stand_ins` has for the machine's architecture the one to take.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise MicroPythonUnavailable("no MicroPython is installed, and this is no Debian or Ubuntu to fetch one from")
    architecture = _output(["dpkg", "--print-architecture"]).strip()
    known = LOADERS if stand_ins is None else stand_ins
    if architecture not in known:
        raise MicroPythonUnavailable(f"no MicroPython is fetched for {architecture}, only for {' and '.join(known)}")
    apt = _configure_apt(scratch, architecture if stand_ins is None else stand_ins[architecture])
    packages = _with_dependencies(apt, "micropython")
    downloads, root = scratch / "downloads", scratch / "root"
    downloads.mkdir()
    _output(["apt-get", *apt, "--quiet", "download", *packages], cwd=downloads)
    for package in downloads.glob("*.deb"):
        _output(["dpkg-deb", "--extract", str(package), str(root)])
    return root


def _configure_apt(scratch: Path, architecture: str) -> list[str]:
    """apt options with state of its own and fresh lists of a distribution that has MicroPython."""
    (scratch / "state/lists/partial").mkdir(parents=True)
    (scratch / "cache/archives/partial").mkdir(parents=True)
    configuration = scratch / "apt.conf"
    user = "root" if os.geteuid() == 0 else ""  # the scratch folder is not open to apt's own user
    own_state = APT_OPTIONS.format(home=scratch, user=user, architecture=architecture)
    apt = [f"--config-file={configuration}"]
    configuration.write_text(own_state)

    archives = _archives([])
    if not archives:  # apt has never been updated on this machine
        _output(["apt-get", *apt, "--quiet", "update"])
        archives = _archives(apt)
    if "Debian" in archives:
        signed = f" signed-by={DEBIAN_KEYRING}" if DEBIAN_KEYRING.exists() else ""
        source = f"deb [target=Packages{signed}] {archives['Debian']} {DEBIAN_SUITE} main\n"
        (scratch / "sources.list").write_text(source)
        configuration.write_text(own_state + OWN_SOURCES_OPTIONS.format(home=scratch))
    elif "Ubuntu" not in archives:
        raise MicroPythonUnavailable("no MicroPython is installed, and apt has no archive of Debian or Ubuntu")
    _output(["apt-get", *apt, "--quiet", "update"])
    return apt


def _archives(apt: list[str]) -> dict[str, str]:
    """The first address of each archive that apt knows, by the archive's label."""
    lines = _output(
        ["apt-get", *apt, "indextargets", "--format", "$(LABEL)\t$(REPO_URI)", "Created-By: Packages"]
    ).splitlines()
    pairs = [line.split("\t") for line in lines]
    return {label: address for label, address in reversed(pairs) if label}


def _with_dependencies(apt: list[str], package: str) -> list[str]:
    weak = ["recommends", "suggests", "conflicts", "breaks", "replaces", "enhances"]
    listing = _output(["apt-cache", *apt, "depends", "--recurse", *(f"--no-{kind}" for kind in weak), package])
    return [line for line in listing.splitlines() if line[:1] not in (" ", "<", "")]


def _output(command: list[str], cwd: Path | None = None) -> str:
    step = " ".join(word for word in command if not word.startswith("-"))
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=APT_TIMEOUT_S, env={**os.environ, "LC_ALL": "C"}
        )
    except subprocess.TimeoutExpired as error:
        raise MicroPythonUnavailable(f"{step}: no end after {APT_TIMEOUT_S} s") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        errors = [line.removeprefix("E: ") for line in said if line.startswith("E: ")] or said
        raise MicroPythonUnavailable(f"{step}: {errors[0]}")
    return done.stdout


def _version(argv: list[str]) -> str | None:
    """The version of the MicroPython at `argv`; None when it does not start or is too old."""
    try:
        done = subprocess.run([*argv, "-c", VERSION_PROGRAM], capture_output=True, text=True, timeout=START_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    name, _, numbers = done.stdout.strip().partition(" ")
    version = tuple(int(number) for number in numbers.split() if number.isdigit())
    return ".".join(map(str, version)) if name == "micropython" and version >= OLDEST_VERSION else None
