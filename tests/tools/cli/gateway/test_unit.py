"""What the documented unit does not let the gateway write is told before the service fails over it."""

import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.house.repository import ROOT
from tests.tools.cli.gateway.running import HOLDFAST, LONG_S

UNITS = ROOT / "packaging/systemd"
GATEWAY = UNITS / "holdfast-gateway.service"


def documented_unit(folder: Path, user: str = "root") -> Path:
    unit = folder / GATEWAY.name
    unit.write_text(GATEWAY.read_text().replace("User=holdfast", f"User={user}"))
    return unit


@pytest.mark.parametrize(
    ("page", "unit"), [("run-a-gateway", "holdfast-gateway.service"), ("run-a-lander", "holdfast-lander.service")]
)
def test_a_page_has_the_unit_as_its_file_has_it(page: str, unit: str) -> None:
    text = (ROOT / f"docs/how-to/{page}.md").read_text("utf-8")
    found = re.search(r"```ini\n(\[Unit\].*?)```", text, re.DOTALL)
    assert found is not None and found[1] == (UNITS / unit).read_text()


@pytest.mark.parametrize(
    ("unit", "drop_in", "exposure"),
    [("gateway", None, 1.2), ("gateway", "serial.conf", 1.6), ("lander", None, 1.2)],
)
def test_a_unit_is_sound_and_lets_its_service_do_little(
    tmp_path: Path, unit: str, drop_in: str | None, exposure: float
) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    file = tmp_path / f"holdfast-{unit}.service"
    # What it starts is not on this machine.
    text = re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", (UNITS / file.name).read_text())
    file.write_text(re.sub(r"Documentation=.*\n", "", text))
    if drop_in is not None:
        (tmp_path / f"{file.name}.d").mkdir()
        (tmp_path / f"{file.name}.d" / drop_in).write_text((UNITS / drop_in).read_text())
    verified = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    command: list[str | Path] = [
        "systemd-analyze",
        "security",
        "--offline=true",
        f"--threshold={round(exposure * 10)}",
        file,
    ]
    looked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert looked.returncode == 0, looked.stdout


@pytest.mark.parametrize(
    "table",
    [
        '[[listener]]\nkind = "serial"\ndevice = "/dev/null"\n',
        '[[connector]]\nkind = "line"\nname = "a"\nport = "/dev/null"\n',
    ],
    ids=("listener", "connector"),
)
def test_a_serial_port_is_told_with_the_command_that_lets_the_service_open_it(tmp_path: Path, table: str) -> None:
    unit = documented_unit(tmp_path)
    path = tmp_path / "gateway.toml"
    path.write_text(f'name = "garage"\nstore = {{path = "store", volatile = true}}\n{table}')
    argv = [*HOLDFAST, "gateway", "check-config", str(path), "--unit", str(unit)]
    told = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=LONG_S, check=False).stderr
    assert "PrivateDevices=yes hides serial ports from the service" in told
    assert f"{unit}.d/serial.conf" in told
    (tmp_path / "holdfast-gateway.service.d").mkdir()
    (tmp_path / "holdfast-gateway.service.d/serial.conf").write_text((UNITS / "serial.conf").read_text())
    told = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=LONG_S, check=False).stderr
    assert "serial ports" not in told


def check(folder: Path, store: str, *options: str) -> subprocess.CompletedProcess[str]:
    path = folder / "gateway.toml"
    path.write_text(f'name = "garage"\n[store]\npath = "{store}"\n[[listener]]\nkind = "tcp"\n')
    argv = [*HOLDFAST, "gateway", "check-config", str(path), *options]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=LONG_S, check=False)


def test_a_store_on_another_disk_is_told_with_the_commands_that_let_the_service_write_it(tmp_path: Path) -> None:
    unit = documented_unit(tmp_path)
    done = check(tmp_path, "/media/ssd/store", "--unit", str(unit))
    assert done.returncode == 0
    assert "ProtectSystem=strict does not let the service write /media/ssd/store" in done.stderr
    assert "--drop-in" in done.stderr and f"{unit}.d/paths.conf" in done.stderr
    drop_in = check(tmp_path, "/media/ssd/store", "--unit", str(unit), "--drop-in")
    assert drop_in.stdout == (
        "[Unit]\nRequiresMountsFor=/media/ssd/store\n\n[Service]\nReadWritePaths=/media/ssd/store\n"
    )
    (tmp_path / "holdfast-gateway.service.d").mkdir()
    (tmp_path / "holdfast-gateway.service.d/paths.conf").write_text(drop_in.stdout)
    again = check(tmp_path, "/media/ssd/store", "--unit", str(unit))
    assert (again.returncode, "ProtectSystem" in again.stderr) == (0, False)


def test_the_store_of_the_page_needs_no_drop_in(tmp_path: Path) -> None:
    done = check(tmp_path, "/var/lib/holdfast/store", "--unit", str(documented_unit(tmp_path)))
    assert (done.returncode, "ProtectSystem" in done.stderr) == (0, False)


def test_a_store_that_the_units_user_cannot_write_is_an_error_although_root_asks() -> None:
    # pytest's own folders are for root alone, and each pytest that starts makes them so again.
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "ssd").mkdir(mode=0o755)
        done = check(folder, "ssd/store", "--unit", str(documented_unit(folder, "daemon")))
    assert (done.returncode, f"store.path: {folder}/ssd: Permission denied" in done.stderr) == (2, True), done.stderr
