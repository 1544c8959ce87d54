"""`holdfast device stubs`: what it fetches, what it leaves alone, and that the types are those of the library."""

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.command import holdfast
from tools.cli.paths import source_root

PAGE = source_root() / "docs/how-to/library.md"
FACE = source_root() / "tools/cli/device/holdfast.pyi"
WRONG = """
import holdfast

def on_message(topic: str, payload: bytes) -> bool:
    return True

holdfast.start("device.json", on_message)
holdfast.publish("doors/front", "closed")
"""


def wheel(folder: Path, name: str, version: str, module: str) -> None:
    """Writes a package of stubs with one module, as PyPI has it."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(module, "\n")
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        )
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with packages of stubs, from which pip takes them instead of PyPI."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for board in ("esp32", "rp2"):
        wheel(folder, f"micropython_{board}_stubs", "1.29.0.post1", "machine.pyi")
    wheel(folder, "micropython_stdlib_stubs", "1.29.0.post2", "stdlib/VERSIONS")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def fill(out: Path, board: str = "esp32") -> None:
    done = holdfast("device", "stubs", "--board", board, "--out", str(out))
    assert done.exit_code == 0, done.stderr


def program_of_the_page() -> str:
    return block_of_the_page("python", 2)


def block_of_the_page(language: str, number: int = 1) -> str:
    return PAGE.read_text().split(f"```{language}\n")[number].partition("```")[0]


def test_a_folder_has_the_stubs_of_each_board_and_the_library_that_is_on_it(packages: Path, tmp_path: Path) -> None:
    out = tmp_path / "typings"
    for board in ("esp32", "rp2"):
        fill(out, board)
        assert (out / board / "machine.pyi").exists() and (out / board / "stdlib/VERSIONS").exists()
    assert sorted(path.name for path in out.iterdir()) == [
        *("esp32", "esp32.ini", "esp32.json", "holdfast", "rp2", "rp2.ini", "rp2.json")
    ]
    library = out / "holdfast"
    assert (library / "flash_store/log.py").exists() and not (library / "wire/bulk").exists()
    assert (library / "holdfast.py").read_text() == (source_root() / "device/library.py").read_text()


def test_a_second_run_needs_no_network_and_keeps_settings_that_were_changed(packages: Path, tmp_path: Path) -> None:
    out = tmp_path / "typings"
    fill(out)
    (out / "esp32.json").write_text("{}")
    shutil.rmtree(packages)
    fill(out)
    assert (out / "esp32/machine.pyi").exists()
    assert (out / "esp32.json").read_text() == "{}"


def test_stubs_of_another_version_are_replaced_whole(packages: Path, tmp_path: Path) -> None:
    out = tmp_path / "typings"
    fill(out)
    (out / "esp32/versions.txt").write_text("micropython-esp32-stubs==1.20\n")
    (out / "esp32/gone.pyi").touch()
    fill(out)
    assert not (out / "esp32/gone.pyi").exists()


def test_without_a_network_it_says_what_pip_says_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    done = holdfast("device", "stubs", "--board", "rp2", "--out", str(tmp_path / "typings"))
    assert done.exit_code == 2
    assert "pip cannot install micropython-rp2-stubs==" in done.stderr
    assert "No matching distribution" in done.stderr
    assert not (tmp_path / "typings/rp2").exists()


def test_a_folder_with_other_files_is_left_alone(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "typings/esp32").mkdir(parents=True)
    (tmp_path / "typings/esp32/precious").touch()
    done = holdfast("device", "stubs", "--board", "esp32", "--out", str(tmp_path / "typings"))
    assert done.exit_code == 2
    assert "nothing was changed" in done.stderr
    assert [path.name for path in (tmp_path / "typings/esp32").iterdir()] == ["precious"]


def test_a_checkout_keeps_its_own_settings_and_gets_no_copy_of_itself(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "device").mkdir()
    (tmp_path / "device/library.py").touch()
    fill(tmp_path / "typings")
    assert [path.name for path in (tmp_path / "typings").iterdir()] == ["esp32"]


def functions(path: Path) -> dict[str, ast.arguments]:
    return {
        node.name: node.args
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


def test_the_types_are_those_of_the_library() -> None:
    library, face = functions(source_root() / "device/library.py"), functions(FACE)
    assert list(face) == list(library)
    for name, arguments in library.items():
        typed = {one.arg: one.annotation for one in face[name].args}
        assert list(typed) == [one.arg for one in arguments.args]
        assert [*map(ast.dump, face[name].defaults)] == [*map(ast.dump, arguments.defaults)]
        for one in arguments.args:
            annotation = typed[one.arg]
            assert annotation is not None
            assert one.annotation is None or ast.dump(one.annotation) == ast.dump(annotation)


def check(folder: Path, *command: str) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=150).stdout


def test_the_program_of_the_page_fits_the_types_and_a_wrong_one_does_not(packages: Path, tmp_path: Path) -> None:
    fill(tmp_path / "typings")
    (tmp_path / "main.py").write_text(program_of_the_page())
    (tmp_path / "wrong.py").write_text(WRONG)
    # The packages of this test have no types of MicroPython's own.
    settings = (tmp_path / "typings/esp32.ini").read_text()
    (tmp_path / "typings/esp32.ini").write_text(settings.replace("custom_typeshed_dir", "# custom_typeshed_dir"))
    _, mypy = block_of_the_page("sh", 3).splitlines()
    program, *options, file = mypy.split()
    checker = (sys.executable, "-m", program, *options)
    assert check(tmp_path, *checker, file) == "Success: no issues found in 1 source file\n"
    said = check(tmp_path, *checker, "wrong.py").splitlines()
    assert [line.partition(" error: ")[0] for line in said[:-1]] == ["wrong.py:7:", "wrong.py:8:"]


@pytest.fixture
def pyright() -> str:
    program = shutil.which("pyright")
    if program is None:
        assert "CI" not in os.environ, "pyright is not installed"
        pytest.skip("pyright is not installed")
    return program


@pytest.mark.parametrize("board", ["esp32", "rp2"])
def test_pyright_takes_the_program_of_the_page_and_no_wrong_one(board: str, pyright: str, tmp_path: Path) -> None:
    fill(tmp_path / "typings", board)
    (tmp_path / "main.py").write_text(program_of_the_page())
    (tmp_path / "pyrightconfig.json").write_text(block_of_the_page("json").replace("esp32", board))
    assert check(tmp_path, pyright) == "0 errors, 0 warnings, 0 informations\n"
    (tmp_path / "main.py").write_text(WRONG)
    assert "2 errors" in check(tmp_path, pyright)


@pytest.mark.parametrize("board", ["esp32", pytest.param("rp2", marks=pytest.mark.long)])
def test_pyright_finds_nothing_in_the_portable_modules(board: str, pyright: str) -> None:
    fill(source_root() / "typings", board)
    assert check(source_root(), pyright, "-p", f"typings/{board}.json") == "0 errors, 0 warnings, 0 informations\n"
