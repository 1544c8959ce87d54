"""What the Debian package and the images of containers have in common: our programs with their libraries."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

from wheels import MACHINES, fetch, lay, strip

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
UNITS = ("holdfast-gateway.service", "holdfast-upgrade.service")
FALLBACK_EPOCH = "1767225600"  # 2026-01-01, without git
LIBRARIES = """\
The libraries in /usr/lib/holdfast/app/libraries have licences of their own, in their folders that end in .dist-info.
Holdfast itself has this one:"""
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def lay_app(app: Path, arch: str, name: str, version: str) -> None:
    """Writes our programs and all libraries into a folder. Raises BuildError."""
    libraries = app / "libraries"
    libraries.mkdir(parents=True)
    lay(fetch(arch, _cache()), libraries)
    strip(libraries, arch)
    described = libraries / f"{name.replace('-', '_')}-{version}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(METADATA.format(name=name, version=version))
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for file in _ours(config["only-include"]):
        target = app / "holdfast" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, target)
    shutil.copyfile(HERE / "program/main.py", app / "main.py")


def lay_system(root: Path) -> None:
    """Writes what is not in the folder of one version: the command, units, and the first configuration."""
    for source, target in (
        ("program/holdfast", "usr/bin/holdfast"),
        ("program/watch", "usr/lib/holdfast/watch"),
        ("program/compile.py", "usr/lib/holdfast/compile.py"),
        ("program/healthy.py", "usr/lib/holdfast/healthy.py"),
        ("program/gateway.toml", "usr/share/holdfast/gateway.toml"),
        ("program/access", "usr/share/holdfast/access"),
        ("../systemd/serial.conf", "usr/share/holdfast/serial.conf"),
        *((f"../systemd/{unit}", f"usr/lib/systemd/system/{unit}") for unit in UNITS),
    ):
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(HERE / source, root / target)
    licence = root / "usr/share/doc/holdfast/copyright"
    licence.parent.mkdir(parents=True)
    licence.write_text(f"{LIBRARIES}\n\n{(ROOT / 'LICENSE').read_text()}")


def _ours(folders: list[str]) -> list[str]:
    """Returns the files of our packages: without what git ignores."""
    if (ROOT / ".git").exists():
        command = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
        return sorted(file for file in listed if file and (ROOT / file).is_file())
    found = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    return sorted(str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts)


def build_epoch() -> str:
    """Returns the time that all files get, in Unix seconds: SOURCE_DATE_EPOCH, or that of the commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    done = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], check=False, capture_output=True, text=True)
    return done.stdout.strip() or FALLBACK_EPOCH


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-debian"


def this_architecture() -> str:
    """Returns what Debian calls the architecture of this machine."""
    machines = {machine: arch for arch, machine in MACHINES.items()}
    return machines.get(os.uname().machine, "amd64")
