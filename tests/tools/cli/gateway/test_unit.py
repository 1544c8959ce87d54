"""What the documented unit does not let the gateway write is told before the service fails over it."""

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.house.repository import ROOT
from tests.tools.cli.gateway.running import HOLDFAST, LONG_S

PAGE = ROOT / "docs/how-to/run-a-gateway.md"


def documented_unit(folder: Path, user: str = "root") -> Path:
    found = re.search(r"```ini\n(\[Unit\].*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    unit = folder / "holdfast-gateway.service"
    unit.write_text(found[1].replace("User=holdfast", f"User={user}"))
    return unit


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
