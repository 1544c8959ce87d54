"""The real MicroPython that the demo's devices and the tests run on."""

import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools.lab.micropython import OLDEST_VERSION, MicroPython, MicroPythonUnavailable, find


def empty_cache(patch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Empties the cache and hides an installed `micropython`; returns the folder of the cache."""
    which = shutil.which
    patch.setattr(shutil, "which", lambda name: None if name == "micropython" else which(name))
    patch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "holdfast"


@pytest.fixture
def no_system_micropython(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return empty_cache(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def fetched_by_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[MicroPython]]]:
    """A cache that was empty, and what two at once have found by it."""
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        cache = empty_cache(patch, tmp_path_factory.mktemp("cache"))
        yield cache, list(pool.map(lambda _: find(), range(2)))


def run(vm: MicroPython, program: str) -> str:
    done = subprocess.run(
        [*vm.argv, "-c", program], env=vm.environment(), capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def test_it_is_micropython_and_new_enough(micropython: MicroPython) -> None:
    assert run(micropython, "import sys; print(sys.implementation.name)") == "micropython"
    assert tuple(map(int, micropython.version.split("."))) >= OLDEST_VERSION


def test_its_environment_finds_our_packages_and_its_own_asyncio(micropython: MicroPython) -> None:
    assert run(micropython, "import asyncio, wire; print(wire.__path__)").endswith("wire")


def test_its_heap_limit_is_hard(micropython: MicroPython) -> None:
    limited = MicroPython([*micropython.argv, "-X", "heapsize=64wk"], micropython.version)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(limited, "bytearray(1 << 20)")
    assert "MemoryError" in failed.value.stdout + failed.value.stderr


def test_it_is_fetched_once_by_two_at_once(fetched_by_two: tuple[Path, list[MicroPython]]) -> None:
    cache, (first, second) = fetched_by_two
    assert first == second
    assert first.argv[0].startswith(str(cache))
    assert sorted(path.name for path in cache.iterdir()) == ["micropython", "micropython.lock"]


@pytest.mark.usefixtures("fetched_by_two")
def test_a_broken_cache_is_fetched_again() -> None:
    broken = Path(find().argv[-1])
    broken.write_bytes(broken.read_bytes()[:1000])
    assert run(find(), "print(1)") == "1"


def test_unreachable_archive_is_named_as_the_reason(
    no_system_micropython: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    unreachable = tmp_path / "apt.conf"
    unreachable.write_text('Acquire::http::Proxy "http://127.0.0.1:9";\nAcquire::https::Proxy "http://127.0.0.1:9";\n')
    monkeypatch.setenv("APT_CONFIG", str(unreachable))
    with pytest.raises(MicroPythonUnavailable, match="apt-get update: "):
        find()
    assert [path.name for path in no_system_micropython.iterdir()] == ["micropython.lock"]


def test_unwritable_cache_is_named_as_the_reason(no_system_micropython: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    with pytest.raises(MicroPythonUnavailable, match="/dev/null"):
        find()
