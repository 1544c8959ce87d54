"""The Debian package: the same bytes each time, with all that it needs, and nothing left half done."""

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.house.extras import brought_by
from tests.house.repository import ROOT
from tests.support.full_disk import FullDisk
from tools.cli.commands import COMMANDS

DEBIAN = ROOT / "packaging/debian"
PYTHONS = ((3, 11), (3, 13))
SIGNING_KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"  # RFC 8032, section 7.1
APP = "usr/lib/holdfast/app"


def test_the_lock_has_the_tested_version_of_each_library_and_hashes_alone() -> None:
    lines = [line for line in (DEBIAN / "wheels.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+( --hash=sha256:[0-9a-f]{64})+", line)] == []
    pins = {line.split()[0] for line in lines}
    tested = set((ROOT / "constraints/python3.txt").read_text().splitlines())
    assert {pin.partition("==")[0] for pin in pins - tested} == {"setuptools"}, "which is needed to build alone"


def test_the_lock_has_all_that_the_gateway_needs() -> None:
    names = {line.partition("==")[0] for line in (DEBIAN / "wheels.txt").read_text().splitlines() if "==" in line}
    plain = {re.sub(r"[-_.]+", "-", name).lower() for name in names}
    needed = brought_by("gateway") | brought_by("receipts")
    assert {re.sub(r"[-_.]+", "-", name).lower() for name in needed} - plain == set()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.version_info[:2] not in PYTHONS or platform.machine() != "x86_64":
        pytest.skip("the build needs Python 3.11 or 3.13, and the test a machine that runs what it builds")
    for command in ("dpkg-deb", "x86_64-linux-gnu-strip"):
        if shutil.which(command) is None:
            pytest.skip(f"there is no {command}")
    return built(tmp_path_factory.mktemp("first"))


def built(folder: Path, umask: int = 0o022, **environment: str) -> Path:
    command: list[str | Path] = [sys.executable, DEBIAN / "build", "--arch", "amd64", "--out", folder]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600", **environment}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, umask=umask, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def unpacked(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    return folder


@pytest.mark.timeout(600)  # the libraries are fetched
def test_two_builds_have_the_same_bytes(package: Path, tmp_path: Path) -> None:
    assert built(tmp_path, 0o077, TZ="Asia/Tokyo", LC_ALL="C").read_bytes() == package.read_bytes()


def test_all_files_belong_to_root_and_have_the_same_time(package: Path) -> None:
    listed = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=True)
    (package.parent / "data.tar").write_bytes(listed.stdout)
    with tarfile.open(package.parent / "data.tar") as data:
        files = data.getmembers()
    assert {(file.uname, file.gname, file.uid, file.gid) for file in files} == {("root", "root", 0, 0)}
    assert len({file.mtime for file in files}) == 1
    assert {oct(file.mode) for file in files} == {"0o755", "0o644"}
    assert not any("__pycache__" in file.name or file.name.startswith("./etc/") for file in files)


def run(unpacked: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-ISB", str(unpacked / APP / "main.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=unpacked, check=False)


def test_the_command_runs_with_the_libraries_inside_alone(unpacked: Path, tmp_path: Path) -> None:
    assert re.fullmatch(r"holdfast \d+\.\d+\.\d+\n", run(unpacked, "--version").stdout)
    (tmp_path / "gateway.toml").write_text(
        'name = "here"\nstore = {path = "store", volatile = true}\n'
        '[[route]]\nname = "central"\nbroker = "mqtt://central.example.org"\nuntil = "receipt"\n'
        f'receipt_key = "{SIGNING_KEY}"\n'
    )
    done = run(unpacked, "gateway", "check-config", str(tmp_path / "gateway.toml"))
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'gateway.toml'}: ok\n"), done.stderr


def test_each_compiled_module_can_be_imported_although_it_was_stripped(unpacked: Path) -> None:
    libraries = unpacked / APP / "libraries"
    tag = f".cpython-{sys.version_info[0]}{sys.version_info[1]}-"
    files = [
        file.relative_to(libraries) for file in libraries.rglob("*.so") if tag in file.name or ".abi3." in file.name
    ]
    names = [".".join([*file.parent.parts, file.name.partition(".")[0]]) for file in files]
    program = f"import sys, importlib; sys.path.insert(0, {str(libraries)!r})\n"
    program += "".join(f"importlib.import_module({name!r})\n" for name in names)
    done = subprocess.run([sys.executable, "-IS", "-B", "-c", program], capture_output=True, text=True, check=False)
    assert len(names) > 10 and done.returncode == 0, done.stderr
    for version in PYTHONS:
        assert (libraries / f"uvloop/loop.cpython-{version[0]}{version[1]}-x86_64-linux-gnu.so").is_file()


def test_each_command_that_the_package_can_run_has_its_manual_and_its_completion(unpacked: Path) -> None:
    pages = {file.name for file in (unpacked / "usr/share/man/man1").iterdir()}
    assert {"holdfast.1.gz", "holdfast-gateway.1.gz", "holdfast-uplink.1.gz"} <= pages
    script = unpacked / "usr/share/bash-completion/completions/holdfast"
    for typed, expected in (
        ("holdfast ", "gateway"),
        ("holdfast gateway ch", "check-config"),
        ("holdfast gateway check-config file --dr", "--drop-in"),
    ):
        words = " ".join(f"'{word}'" for word in typed.split(" "))
        program = f"source {script}; COMP_WORDS=({words}); COMP_CWORD={typed.count(' ')}; _holdfast"
        program += '; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
        assert expected in done.stdout.split()
    needing = {path.split()[0] for path, command in COMMANDS.items() if command.extra in ("cloud", "flash")}
    assert not {f"holdfast-{word}.1.gz" for word in needing if word == "lander"} & pages


def test_the_scripts_of_the_package_are_sound_shell() -> None:
    scripts = [DEBIAN / "control" / name for name in ("preinst", "postinst", "prerm", "postrm")]
    for script in (*scripts, DEBIAN / "program/holdfast", DEBIAN / "program/watch"):
        subprocess.run(["sh", "-n", script], check=True)


def test_a_full_disk_keeps_no_half_of_a_compiled_module(tmp_path: Path) -> None:
    """What fits is whole, and the rest is not there: a start loads it from its source."""
    modules = tmp_path / "modules"
    modules.mkdir()
    for number in range(40):
        (modules / f"module_{number}.py").write_text("".join(f"name_{line} = 'text {line}'\n" for line in range(5000)))
    disk = FullDisk(tmp_path / "disk")
    try:
        disk.copy(modules, disk.path / "modules")
        disk.fill(but=2_000_000)
        done = disk.run(sys.executable, "-ISB", str(DEBIAN / "program/compile.py"), str(disk.path / "modules"))
        assert done.returncode == 0, done.stderr
        compiled = [name for name in disk.files() if "__pycache__/" in name]
        assert 0 < len(compiled) < 40 and {Path(name).suffix for name in compiled} == {".pyc"}
        program = f"import sys; sys.path.insert(0, '{disk.path}/modules')\n"
        program += "".join(f"import module_{number}\n" for number in range(40))
        done = disk.run(sys.executable, "-ISB", "-c", program)
        assert done.returncode == 0, done.stderr
    finally:
        disk.close()
