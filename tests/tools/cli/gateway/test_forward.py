"""`holdfast gateway forward` adds a route that works, or changes nothing."""

import stat
import subprocess
from pathlib import Path

from tests.house.repository import ROOT
from tests.tools.cli.gateway.running import HOLDFAST, LONG_S, Gateway, publish
from tools.cli.gateway.config import read_configuration


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


def test_what_no_gateway_could_start_with_changes_nothing(tmp_path: Path) -> None:
    path = Gateway(tmp_path).path
    before = path.read_text()
    done = forward(path, "ftp://central", "--user", "site-1", password="s3cret\n")
    assert done.returncode == 2 and "route[0].broker" in done.stderr
    assert path.read_text() == before and not (tmp_path / "central.password").exists()
