"""`holdfast device build --web`: what is in the folder, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from device.field.setup import FIRMWARE as TOLD_FIRMWARE
from tests.support.board_tools import NEEDS_BOARD_TOOLS
from tests.tools.cli.web.packages import MANIFEST, PLAIN, make_package, real_package
from tools.cli.main import make_app
from tools.cli.web.esp_web_tools import EspWebTools, read_package
from tools.cli.web.folder import FIRMWARE
from tools.lab.sim.loader.chips import ESP32, ESP32S3
from tools.lab.sim.whole.firmware_file import make_firmware

pytestmark = NEEDS_BOARD_TOOLS
KEYS: dict[str, Any] = {
    "client_id": "garage-1",
    "topic": "telemetry/garage",
    "port": {"host": "gateway.local", "user": "garage-1", "password": "a secret of the board"},
    "flash": {"path": "holdfast", "sector_count": 16},
    "field": {"improv": True},
    "interval_ms": 1000,
    "sensors": [{"kind": "adc", "pin": 34, "full_scale_mv": 3300}],
}


class Desk:
    """A folder with what the command needs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "web"
        self.config, self.micropython = folder / "device.json", folder / "micropython.bin"
        self.config.write_text(json.dumps(KEYS))
        self.micropython.write_bytes(make_firmware(ESP32, 8192))
        self.package = make_package(folder / "package.tgz", PLAIN)

    def build(self, *options: str) -> Result:
        given = ["--config", self.config, "--micropython", self.micropython, "--esp-web-tools", self.package]
        words = ["device", "build", "--board", "esp32", "--web", "--out", str(self.out), *map(str, given), *options]
        return CliRunner().invoke(make_app(), words)

    def manifest(self) -> Any:
        return json.loads((self.out / "manifest.json").read_text())

    def tree(self) -> dict[str, bytes]:
        return {str(one.relative_to(self.out)): one.read_bytes() for one in self.out.rglob("*") if one.is_file()}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_folder_has_a_page_the_scripts_and_each_part_of_the_manifest(desk: Desk) -> None:
    assert (done := desk.build()).exit_code == 0, done.output
    (build,) = desk.manifest()["builds"]
    assert build["chipFamily"] == "ESP32"
    named = {part["path"] for part in build["parts"]}
    scripts = {"esp-web-tools/install-button.js", "esp-web-tools/LICENSE"}
    assert set(desk.tree()) == {"index.html", "manifest.json", *named, *scripts}
    assert all(part["offset"] % 4096 == 0 for part in build["parts"])


def test_browser_never_erases_unasked_and_takes_every_build_for_an_update(desk: Desk) -> None:
    desk.build()
    first = desk.manifest()
    assert first["new_install_prompt_erase"] is True and "new_install_skip_erase" not in first
    assert first["name"] == FIRMWARE == TOLD_FIRMWARE.decode()
    assert first["version"].startswith("0.1.0+")
    desk.config.write_text(json.dumps({**KEYS, "interval_ms": 2000}))
    desk.build()
    assert desk.manifest()["version"] != first["version"]


def test_no_part_touches_the_store_and_the_root_of_the_files_comes_last(desk: Desk) -> None:
    desk.build()
    parts = [(one["offset"], (desk.out / one["path"]).read_bytes()) for one in desk.manifest()["builds"][0]["parts"]]
    store = range(0x3F0000, 0x400000)
    assert all(at + len(content) <= store.start for at, content in parts)
    begin = 0x200000
    assert parts[0] == (begin, b"\xff" * 8192)  # a run that is cut leaves no file system with half of its files
    assert [at for at, _ in parts[-2:]] == [begin + 4096, begin]


def test_same_things_give_the_same_bytes(desk: Desk) -> None:
    desk.build()
    first = desk.tree()
    desk.build()
    assert desk.tree() == first


def test_only_the_owner_reads_what_has_the_password_and_the_page_has_it_not(desk: Desk) -> None:
    desk.build()
    secret = [name for name, content in desk.tree().items() if b"a secret of the board" in content]
    assert secret and all(name.endswith("device.bin") for name in secret)
    assert {(desk.out / name).stat().st_mode & 0o777 for name in secret} == {0o600}


def test_page_says_what_an_erase_does_and_tells_nothing_to_run_from_a_name(desk: Desk) -> None:
    keys = {**KEYS, "port": {"host": "<script>alert(1)</script>"}}
    desk.config.write_text(json.dumps(keys))
    assert desk.build().exit_code == 0
    page = (desk.out / "index.html").read_text()
    assert "the whole board is erased" in page and "no gateway has yet" in page
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page


def test_board_that_is_not_told_its_wifi_is_not_asked_for_improv(desk: Desk) -> None:
    keys = {**KEYS, "network": {"ssid": "attic", "password": "under the roof"}}
    del keys["field"]
    desk.config.write_text(json.dumps(keys))
    assert desk.build().exit_code == 0
    assert desk.manifest()["new_install_improv_wait_time"] == 0
    assert "sends them over the cable" not in (desk.out / "index.html").read_text()


def test_folder_with_other_files_is_refused_and_an_unfinished_one_is_made_anew(desk: Desk) -> None:
    desk.out.mkdir()
    (desk.out / "letter").write_text("dear")
    refused = desk.build()
    assert refused.exit_code == 2 and "neither empty nor an earlier build" in refused.output
    assert list(desk.out.iterdir()) == [desk.out / "letter"]
    shutil.rmtree(desk.out)
    desk.build()
    (desk.out / "manifest.json").unlink()
    (desk.out / ".unfinished").mkdir()
    assert desk.build().exit_code == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--board", "rp2"], "--board is rp2, expected esp32 with --web"),
        (["--micropython", "device.json"], "is no firmware of an ESP32"),
        (["--config", "missing.json"], "missing.json: No such file or directory"),
        (["--esp-web-tools", "device.json"], "is no package of esp-web-tools"),
    ],
)
def test_what_cannot_be_used_is_told(
    options: list[str], told: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk.folder)
    done = desk.build(*options)
    assert done.exit_code == 2 and told in done.output
    assert not desk.out.exists()


def test_configuration_for_another_chip_is_refused(desk: Desk) -> None:
    desk.micropython.write_bytes(make_firmware(ESP32S3, 8192))
    done = desk.build()
    assert done.exit_code == 2 and "device.json" in done.output and "34" in done.output


def test_options_of_the_page_without_it_and_the_page_without_its_options() -> None:
    words = ["device", "build", "--board", "esp32"]
    one = CliRunner().invoke(make_app(), [*words, "--esp-web-tools", "tools.tgz"])
    other = CliRunner().invoke(make_app(), [*words, "--web"])
    assert (one.exit_code, other.exit_code) == (2, 2)
    assert "expected with --web" in one.output and "expected with --config, --micropython" in other.output


def test_published_package_is_read() -> None:
    found = read_package(real_package())
    assert isinstance(found, EspWebTools) and found.version == "10.4.0"
    assert {"install-button.js", "LICENSE"} < set(found.files)
    assert all("/" not in name for name in found.files)


@pytest.mark.parametrize(
    ("files", "link", "told"),
    [
        ({**PLAIN, "package/package.json": b'{"name": "other"}'}, "", "another name"),
        ({**PLAIN, "package/package.json": b"["}, "", "is no package"),
        ({"package/package.json": MANIFEST}, "", "install-button.js is missing"),
        (PLAIN, "package/dist/web/evil.js", "is no plain file"),
        ({**PLAIN, "package/dist/web/big.js": bytes(5 << 20)}, "", "of a usual size"),
        ({**PLAIN, "package/package.json": MANIFEST.replace(b"10.9.9", b"10.4.0")}, "", "as it was published"),
    ],
)
def test_package_that_is_not_what_it_should_be_is_refused(
    files: dict[str, bytes], link: str, told: str, desk: Desk
) -> None:
    make_package(desk.package, files, link)
    done = desk.build()
    assert done.exit_code == 2 and told in done.output
    assert not desk.out.exists()


def test_names_in_a_package_that_lead_elsewhere_are_left_out(desk: Desk) -> None:
    evil = {"package/dist/web/../../../evil.js": b"x", "/etc/evil.js": b"x", "package/dist/web/.hidden.js": b"x"}
    make_package(desk.package, {**PLAIN, **evil})
    assert desk.build().exit_code == 0
    assert not [name for name, content in desk.tree().items() if content == b"x"]
    assert "10.9.9; 10.4.0 is the tested one" in (desk.out / "index.html").read_text()
