"""`holdfast gateway forward` adds a route that works, or changes nothing."""

import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.repository import ROOT
from tests.tools.cli.gateway.running import HOLDFAST, LONG_S, Gateway, publish
from tools.cli.gateway.config import read_configuration

KILLED = """\
import os, signal, sys
from tools.cli.main import main
step, left = sys.argv[1], [int(sys.argv[2])]
real = getattr(os, step)
def dying(*given, **more):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given, **more)
setattr(os, step, dying)
sys.argv = ["holdfast", "gateway", "forward", *sys.argv[3:]]
main()
"""


def forward(path: Path, *words: str, password: str = "") -> subprocess.CompletedProcess[str]:
    argv = [*HOLDFAST, "gateway", "forward", *words, str(path)]
    return subprocess.run(argv, cwd=ROOT, input=password, capture_output=True, text=True, timeout=LONG_S, check=False)


def test_a_gateway_forwards_to_the_broker_that_it_was_told(tmp_path: Path) -> None:
    for name in ("central", "site"):
        (tmp_path / name).mkdir()
    (tmp_path / "central/rules").write_text("allow - publish,subscribe #\nallow - identify *\n")
    central = Gateway(tmp_path / "central", 'acl = "rules"', name="central")
    site = Gateway(tmp_path / "site", name="site")
    with central.running():
        done = forward(site.path, f"mqtt://127.0.0.1:{central.port}", "--filter", "a")
        assert done.returncode == 0 and "the route begins when" in done.stdout, done.stderr
        with site.running():
            assert publish(site.port, "-r") == 0
            subscribe = ["mosquitto_sub", "-p", str(central.port), "-t", "a", "-C", "1", "-W", str(int(LONG_S))]
            assert subprocess.run(subscribe, capture_output=True, text=True, check=False).stdout == "hello\n"
    (route,) = read_configuration(site.path).routes
    assert (route.name, route.filters) == ("central", ("a",))


def test_the_password_is_in_a_file_that_others_cannot_read(tmp_path: Path) -> None:
    path = Gateway(tmp_path).path
    done = forward(path, "mqtts://central", "--user", "site-1", "--name", "up", password="s3cret\n")
    assert done.returncode == 0, done.stderr
    secret = tmp_path / "up.password"
    assert (secret.read_text(), stat.S_IMODE(secret.stat().st_mode)) == ("s3cret\n", 0o640)
    (route,) = read_configuration(path).routes
    assert (route.user, route.password_file) == ("site-1", str(secret))
    before = path.read_text()
    again = forward(path, "mqtts://other", "--user", "site-1", "--name", "up", password="other\n")
    assert (again.returncode, path.read_text(), secret.read_text()) == (2, before, "s3cret\n")
    assert "there is a route up already, to mqtts://central" in again.stderr


def test_the_same_again_changes_nothing_but_the_password(tmp_path: Path) -> None:
    path = Gateway(tmp_path).path
    words = ("mqtts://central", "--user", "site-1", "--filter", "a")
    assert forward(path, *words, password="old\n").returncode == 0
    before = path.read_text()
    again = forward(path, *words, password="new\n")
    assert again.returncode == 0 and "the route central was there already" in again.stdout, again.stderr
    assert (path.read_text(), (tmp_path / "central.password").read_text()) == (before, "new\n")


def test_a_password_file_of_something_else_stays_as_it_is(tmp_path: Path) -> None:
    path = Gateway(tmp_path).path
    before = path.read_text()
    (tmp_path / "first.password").write_text("of an account\n")
    done = forward(path, "mqtts://central", "--user", "site-1", "--name", "first", password="s3cret\n")
    assert done.returncode == 2 and "first.password: it is there with another content" in done.stderr
    assert (path.read_text(), (tmp_path / "first.password").read_text()) == (before, "of an account\n")


def run_killed(step: str, number: int, *words: str) -> int:
    """Kills it in place of a call of the operating system, the first one or a later one; returns how it ended."""
    argv = [sys.executable, "-c", KILLED, step, str(number), *words]
    done = subprocess.run(argv, cwd=ROOT, input="s3cret\n", capture_output=True, text=True, timeout=LONG_S, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.mark.parametrize("step", ["open", "fchmod", "fsync", "replace", "chown"])
def test_a_run_that_was_killed_at_any_step_is_typed_again_and_ends_well(tmp_path: Path, step: str) -> None:
    path = Gateway(tmp_path).path
    words = ("mqtts://central", "--user", "site-1")
    killed = 0
    while run_killed(step, killed + 1, *words, str(path)) == -signal.SIGKILL:
        killed += 1
        read_configuration(path)  # a gateway could start with it
    assert killed
    done = forward(path, *words, password="s3cret\n")
    assert done.returncode == 0, done.stderr
    assert [route.name for route in read_configuration(path).routes] == ["central"]
    assert (tmp_path / "central.password").read_text() == "s3cret\n"
    assert not list(tmp_path.glob(".*.new"))


def test_what_no_gateway_could_start_with_changes_nothing(tmp_path: Path) -> None:
    path = Gateway(tmp_path).path
    before = path.read_text()
    done = forward(path, "ftp://central", "--user", "site-1", password="s3cret\n")
    assert done.returncode == 2 and "route[0].broker" in done.stderr
    assert path.read_text() == before and not (tmp_path / "central.password").exists()
