"""The OCI image: the same bytes each time, not root, its messages on the volume, and an orderly end."""

import json
import os
import platform
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.repository import ROOT
from tests.support.container import Container, skip_without_containers, unpack

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

HEALTHY = ("/usr/bin/python3.13", "-ISB", "/usr/lib/holdfast/healthy.py")


def built(folder: Path, umask: int = 0o022, **environment: str) -> Path:
    command: list[str | Path] = [sys.executable, ROOT / "packaging/container/build", "--out", folder]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600", **environment}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, umask=umask, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    skip_without_containers()
    if sys.version_info[:2] not in ((3, 11), (3, 13)) or platform.machine() != "x86_64":
        pytest.skip("the build needs Python 3.11 or 3.13, and the test a machine that runs what it builds")
    return built(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def bundle(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(image, tmp_path_factory.mktemp("unpacked"))


@pytest.fixture
def container(bundle: Path, tmp_path: Path) -> Iterator[Container]:
    container = Container(bundle, tmp_path)
    try:
        yield container
    finally:
        container.close()


def login(container: Container) -> list[str]:
    password = container.run("cat", "/etc/holdfast/first.password").stdout.strip()
    assert len(password) == 20
    return ["-h", "127.0.0.1", "-u", "first", "-P", password]


def test_two_builds_have_the_same_bytes(image: Path, tmp_path: Path) -> None:
    assert built(tmp_path, 0o077, TZ="Asia/Tokyo", LC_ALL="C").read_bytes() == image.read_bytes()


def test_the_image_names_an_unprivileged_user_and_has_nothing_of_the_machine_that_built_it(
    bundle: Path,
) -> None:
    user = json.loads((bundle / "config.json").read_text())["process"]["user"]
    assert user["uid"] > 0 and user["gid"] > 0
    root = bundle / "rootfs"
    for file in ("etc/hostname", "etc/resolv.conf", "etc/apt/sources.list"):
        assert not (root / file).exists()
    assert b"BEGIN CERTIFICATE" in (root / "etc/ssl/certs/ca-certificates.crt").read_bytes()
    programs = [file for file in root.rglob("*") if file.is_file() and not file.is_symlink()]
    assert [file for file in programs if file.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)] == []


def test_a_message_survives_a_kill_and_an_orderly_end(container: Container) -> None:
    container.start()
    container.wait_for("ready")
    publish = ["mosquitto_pub", *login(container), "-q", "1", "-r"]
    assert container.beside(*publish, "-t", "first", "-m", "kept").returncode == 0
    container.kill("KILL")
    container.ended()

    container.start()
    container.wait_for("ready")
    receive = ["mosquitto_sub", *login(container), "-C", "1", "-W", "30"]
    assert container.beside(*receive, "-t", "first").stdout == "kept\n"
    assert container.beside(*publish, "-t", "second", "-m", "kept").returncode == 0
    container.kill("TERM")
    assert container.ended() == 0
    assert "what has come is stored and acknowledged first" in container.log()

    container.start()
    container.wait_for("ready")
    assert container.beside(*receive, "-t", "second").stdout == "kept\n"
    assert (container.volume / "store").is_dir() and (container.volume / "config/gateway.toml").is_file()


def test_it_runs_without_root_and_answers_the_health_check(container: Container) -> None:
    container.start()
    container.wait_for("ready")
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{container.process_id()}/status").read_text().splitlines()
        if ":\t" in line
    )
    assert "0" not in status["Uid"].split() and "0" not in status["Gid"].split()
    done = container.run(*HEALTHY)
    assert (done.returncode, done.stdout) == (0, "healthy\n"), done.stderr
    assert container.run("holdfast", "gateway", "check-config").returncode == 0


def test_a_health_check_fails_when_the_gateway_does_not_answer(container: Container) -> None:
    container.start()
    container.wait_for("ready")
    os.kill(container.process_id(), signal.SIGSTOP)
    done = container.run(*HEALTHY)
    os.kill(container.process_id(), signal.SIGCONT)
    assert done.returncode == 1 and "/healthz does not answer" in done.stdout


def test_a_volume_in_memory_is_refused(container: Container) -> None:
    container.start(on_disk=False)
    assert container.ended() == 2
    assert "volatile" in container.log()


def test_a_volume_that_cannot_be_written_is_named(container: Container) -> None:
    os.chown(container.volume, 0, 0)
    container.start()
    assert container.ended() == 1
    assert "user 10001 must be able to write the volume" in container.log()
