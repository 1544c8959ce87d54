"""The Debian package on a real systemd: install, upgrade, an upgrade that fails, purge, and a power cut in each."""

import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.repository import ROOT
from tests.support.whole_machine import Machine

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]

LIB = "/usr/lib/holdfast"
LOGIN = "-h 127.0.0.1 -u first -P $(cat /etc/holdfast/first.password)"
SETTLE = "mkdir -p /etc/systemd/system/holdfast-upgrade.service.d; " + (
    r"printf '[Service]\nEnvironment=HEALTHY_SECONDS=3\n' > /etc/systemd/system/holdfast-upgrade.service.d/soon.conf"
)
INSTALL_S = 30.0
CENTRAL_PORT = 1884
CENTRAL = f"""
name = "central"
acl = "rules"
store.path = "store"
[[listener]]
kind = "tcp"
host = "127.0.0.1"
port = {CENTRAL_PORT}
"""


def built(folder: Path, version: str) -> Path:
    command: list[str | Path] = [sys.executable, ROOT / "packaging/debian/build", "--version", version, "--out", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Four versions; a gateway of 1.2.0 ends each time that it starts, one of 1.3.0 says that it is ill."""
    if sys.version_info[:2] not in ((3, 11), (3, 13)) or platform.machine() != "x86_64":
        pytest.skip("the build needs Python 3.11 or 3.13, and the test a machine that runs what it builds")
    folder = tmp_path_factory.mktemp("packages")
    made = {version: built(folder, version) for version in ("1.0.0", "1.1.0")}
    made["1.2.0"] = changed(
        made["1.1.0"],
        "1.2.0",
        "tools/cli/gateway/process.py",
        "async def _serve(",
        "async def _serve(*_):\n    1 / 0\n\n\nasync def _s(",
    )
    made["1.3.0"] = changed(
        made["1.1.0"],
        "1.3.0",
        "gateway/observe/health.py",
        "problems = self._problems()",
        'problems = [*self._problems(), "worse than before"]',
    )
    return made


def changed(package: Path, version: str, module: str, old: str, new: str) -> Path:
    """Makes a version with other code in a module."""
    tree = package.parent / f"tree-{version}"
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    file = tree / f"{LIB[1:]}/app/holdfast" / module
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    metadata = next(tree.glob(f"{LIB[1:]}/app/libraries/holdfast_iot-*/METADATA"))
    for named in (metadata, tree / "DEBIAN/control"):
        named.write_text(named.read_text().replace("1.1.0", version))
    made = package.parent / f"holdfast_{version}_amd64.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", tree, made], check=True)
    return made


@pytest.fixture(params=["bookworm", "trixie"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path, request.param)
    try:
        machine.start()
        yield machine
    finally:
        machine.close()


def cut_and_start(machine: Machine) -> None:
    machine.cut_power()
    machine.start()


def publish(machine: Machine, first: int, count: int) -> set[str]:
    """Publishes messages at QoS 1; when it returns, all of them are acknowledged."""
    machine.run(f"seq {first} {first + count - 1} | mosquitto_pub {LOGIN} -q 1 -t m -l")
    return {str(number) for number in range(first, first + count)}


def serves(machine: Machine, version: str) -> None:
    machine.until("systemctl is-active holdfast-gateway")
    assert machine.says("holdfast --version") == f"holdfast {version}"


def test_no_acknowledged_message_is_lost_by_upgrades_that_work_or_fail_or_are_cut_off(
    machine: Machine, packages: dict[str, Path]
) -> None:
    old, new, bad = (f"dpkg -i {machine.take(packages[version])}" for version in ("1.0.0", "1.1.0", "1.2.0"))
    machine.run(SETTLE + "; sync")

    machine.begin(old)
    machine.until(f"[ -d {LIB}/app.dpkg-new ] || [ -d {LIB}/app ]")
    cut_and_start(machine)
    begun = time.monotonic()
    machine.run(old)
    serves(machine, "1.0.0")
    assert time.monotonic() - begun < INSTALL_S
    said = machine.says("systemd-analyze security holdfast-gateway --no-pager | tail -1")
    exposure = re.search(r"(\d+\.\d+)", said)
    assert exposure is not None and float(exposure[1]) <= 1.2, said
    machine.run(f"mosquitto_sub {LOGIN} -i keeps -c -q 1 -t m -x 86400 -V 5 -E")
    sent = publish(machine, 1, 1000)
    cut_and_start(machine)
    serves(machine, "1.0.0")

    machine.begin(new)
    machine.until(f"[ -e {LIB}/was-app ]")
    cut_and_start(machine)
    serves(machine, "1.0.0")
    sent |= publish(machine, 2001, 100)
    machine.run(f"dpkg --configure -a; {new}")
    serves(machine, "1.1.0")
    sent |= publish(machine, 3001, 100)
    machine.until(f"[ ! -e {LIB}/on-trial ] && [ ! -e {LIB}/former ]")
    serves(machine, "1.1.0")

    machine.run(bad)
    machine.until(f"[ -e {LIB}/refused ]")
    serves(machine, "1.1.0")
    sent |= publish(machine, 4001, 100)
    machine.run(f"{bad}; sync")
    assert machine.says(f"readlink {LIB}/current") in ("app", "former")
    cut_and_start(machine)
    machine.until(f"[ -e {LIB}/refused ]")
    serves(machine, "1.1.0")
    sent |= publish(machine, 5001, 100)

    received = machine.says(f"mosquitto_sub {LOGIN} -i keeps -c -q 1 -t m -x 86400 -V 5 -C {len(sent)} -W 60").split()
    assert len(received) == len(sent) and set(received) == sent

    machine.begin("dpkg --purge holdfast")
    machine.until("! systemctl is-active holdfast-gateway")
    cut_and_start(machine)
    machine.run("dpkg --configure -a; dpkg --purge holdfast")
    left = f"ls -d /etc/holdfast /var/lib/holdfast {LIB} /usr/bin/holdfast /etc/systemd/system/holdfast* 2>/dev/null"
    assert machine.run(left, check=False).stdout == ""


def test_a_version_that_runs_and_says_that_it_is_ill_is_taken_back_if_the_former_one_was_well(
    machine: Machine, packages: dict[str, Path]
) -> None:
    old, ill = (f"dpkg -i {machine.take(packages[version])}" for version in ("1.0.0", "1.3.0"))
    machine.run(f"{SETTLE}; {old}")
    machine.until("/usr/bin/python3 -ISB /usr/lib/holdfast/healthy.py")
    machine.run(ill)
    machine.until(f"[ -e {LIB}/refused ]")
    assert machine.says(f"cat {LIB}/refused") == "it runs and says: worse than before"
    serves(machine, "1.0.0")

    machine.run("systemctl stop holdfast-gateway")  # so it is not known that the former one was well
    machine.run(ill)
    machine.until(f"[ ! -e {LIB}/on-trial ]")
    assert machine.says("holdfast --version") == "holdfast 1.3.0"


def test_a_package_that_is_removed_leaves_configuration_and_messages(
    machine: Machine, packages: dict[str, Path]
) -> None:
    install = f"dpkg -i {machine.take(packages['1.0.0'])}"
    machine.run(install)
    machine.run(f"mosquitto_pub {LOGIN} -q 1 -r -t kept -m works")
    before = machine.says("cat $(find /etc/holdfast -type f | sort)")
    machine.run("dpkg --remove holdfast")
    assert machine.run("command -v holdfast", check=False).returncode != 0
    machine.run(install)
    assert machine.says("cat $(find /etc/holdfast -type f | sort)") == before
    assert machine.says(f"mosquitto_sub {LOGIN} -t kept -C 1 -W 30") == "works"


def test_an_upgrade_that_finds_no_room_leaves_the_gateway_as_it_was(
    machine: Machine, packages: dict[str, Path]
) -> None:
    old, new = (f"dpkg -i {machine.take(packages[version])}" for version in ("1.0.0", "1.1.0"))
    machine.run(old)
    machine.run(f"mosquitto_pub {LOGIN} -q 1 -r -t kept -m works")
    machine.run("fallocate -l $(($(stat -f -c '%f * %S' /) - 20000000)) /filler")
    assert machine.run(new, check=False).returncode != 0
    serves(machine, "1.0.0")
    assert machine.says(f"mosquitto_sub {LOGIN} -t kept -C 1 -W 30") == "works"
    machine.run("rm /filler; sync")
    cut_and_start(machine)
    serves(machine, "1.0.0")
    machine.run(f"dpkg --configure -a; {new}")
    serves(machine, "1.1.0")
    assert machine.says(f"mosquitto_sub {LOGIN} -t kept -C 1 -W 30") == "works"


def test_three_commands_bring_a_message_to_the_central_broker_through_a_power_cut(
    machine: Machine, packages: dict[str, Path]
) -> None:
    machine.run(f"dpkg -i {machine.take(packages['1.0.0'])}")
    (machine.root / "srv/central.toml").write_text(CENTRAL)
    (machine.root / "srv/rules").write_text("allow - publish,subscribe #\nallow - identify *\n")
    machine.run("sync")
    machine.run(f"holdfast gateway forward mqtt://127.0.0.1:{CENTRAL_PORT}")
    machine.run("XDG_CONFIG_HOME=/etc/holdfast/first mosquitto_pub -q 1 -r -t check -m works")
    cut_and_start(machine)
    machine.run("systemd-run --unit central holdfast gateway run --config /srv/central.toml")
    command = f"mosquitto_sub -h 127.0.0.1 -p {CENTRAL_PORT} -t check -C 1 -W 100"
    machine.until(f"[ $({command}) = works ]")
    assert machine.says("XDG_CONFIG_HOME=/etc/holdfast/first mosquitto_sub -C 1 -W 30 -t check") == "works"
    assert machine.says("stat -c %a:%U /etc/holdfast/first") == "700:root"
