"""`holdfast flash --site`: the site's key and certificate, or account, go to the board, and to no other board."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from littlefs import LittleFS
from typer.testing import Result

from tests.support.board_tools import NEEDS_BOARD_TOOLS
from tests.support.command import holdfast
from tests.tools.cli.site.at_gateway import SiteGateway
from tools.cli.board import process
from tools.cli.site.giving import Wish
from tools.cli.site.making import make_site
from tools.cli.site.site import Site
from tools.lab.micropython import MicroPython
from tools.lab.sim.loader.chips import ESP32, with_mac
from tools.lab.sim.whole.esp import WholeBoard
from tools.lab.sim.whole.firmware_file import make_firmware
from tools.lab.testing.ports import free_port

pytestmark = NEEDS_BOARD_TOOLS
BLANK = b"\xff" * (4 << 20)
FILES = range(0x200000, 0x3F0000)
OTHER_MAC = bytes.fromhex("24 6f 28 00 00 02")


class Desk:
    """A site, a board, and a configuration for it."""

    def __init__(self, folder: Path, board: WholeBoard, site: Path, port: int) -> None:
        self.folder, self.board, self.site = folder, board, site
        self.keys: dict[str, Any] = {
            "client_id": "garage-1",
            "topic": "telemetry/garage-1",
            "network": {"ssid": "attic", "password": "under the roof"},
            "port": {"host": "localhost", "port": port},
            "flash": {"path": "holdfast", "sector_count": 16},
            "interval_ms": 100,
            "sensors": [{"kind": "adc", "pin": 34, "full_scale_mv": 3300}],
        }
        self.micropython = folder / "micropython.bin"
        self.micropython.write_bytes(make_firmware(ESP32, 8 * 1024))

    def flash(self, *options: str, board: WholeBoard | None = None) -> Result:
        config = self.folder / "device.json"
        config.write_text(json.dumps(self.keys))
        words = ["--port", (board or self.board).port, "--config", str(config), "--site", str(self.site)]
        return holdfast("flash", "esp32", *words, "--micropython", str(self.micropython), *options)


@pytest.fixture
def desk(tmp_path: Path, micropython: MicroPython) -> Iterator[Desk]:
    make_site(tmp_path / "site", "hill")
    with WholeBoard(tmp_path / "board", micropython=micropython) as board:
        yield Desk(tmp_path, board, tmp_path / "site", free_port())


def files_on(board: WholeBoard) -> dict[str, bytes]:
    """The files in the root of the board's file system, read from its flash."""
    size = 4096
    image = LittleFS(block_size=size, block_count=len(FILES) // size, prog_size=32, read_size=32, mount=False)
    image.context.buffer[:] = board.flash.read(FILES.start, len(FILES))
    image.mount()
    found = {}
    for name in image.listdir("/"):
        if "." in name:
            with image.open(name, "rb") as file:
                found[name] = file.read()
    return found


@pytest.mark.parametrize("kind", ["certificate", "password"])
def test_blank_board_gets_its_login_from_the_site_and_sends_its_first_reading(
    kind: str, tmp_path: Path, micropython: MicroPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = SiteGateway(tmp_path)
    started: list[list[str]] = []
    run = process.run

    def note(words: list[str], *more: Any, **keys: Any) -> str:
        started.append(words)
        return run(words, *more, **keys)

    for module in ("tools.cli.board.esp.loader", "tools.cli.board.console"):
        monkeypatch.setattr(f"{module}.run", note)
    with gateway.serving(), WholeBoard(tmp_path / "board", micropython=micropython) as board:
        port = gateway.port if kind == "certificate" else gateway.password_port
        made = Desk(tmp_path, board, tmp_path / "site", port)
        options = [] if kind == "certificate" else ["--account"]
        done = made.flash(*options, "--reload", f"kill -HUP {gateway.pid}")
        assert done.exit_code == 0, done.output
        assert 'first reading: [{"bn":"garage-1:"' in done.output
        given = gateway.site.find("garage-1")
        assert given is not None and given.line.kind == kind
        assert given.line.board == "24:6f:28:aa:bb:cc"
        on_board = files_on(board)
        assert given.board_files().items() <= on_board.items()
        keys = json.loads(on_board["device.json"])
        assert keys["port"] == {"host": "localhost", "port": port, **given.port()}
        again = made.flash(*options)
        assert "the board has all of it already" in again.output, again.output
        assert gateway.site.find("garage-1") == given
    secret = given.port()["password"] if kind == "password" else given.key.read_text()
    assert secret not in done.output + json.dumps(started) and "under the roof" not in done.output + json.dumps(started)


def test_key_of_one_board_goes_to_no_other(desk: Desk, micropython: MicroPython) -> None:
    assert desk.flash("--no-wait").exit_code == 0
    chip = with_mac(ESP32, OTHER_MAC)
    with WholeBoard(desk.folder / "other", chip, micropython=micropython) as other:
        done = desk.flash("--no-wait", board=other)
        assert done.exit_code == 2
        assert (
            "'garage-1' was given to another board, 24:6f:28:aa:bb:cc; `holdfast site revoke garage-1`" in done.stderr
        )
        assert other.flash.read(0, 4 << 20) == BLANK
        assert holdfast("site", "revoke", "garage-1", "--site", str(desk.site)).exit_code == 0
        done = desk.flash("--no-wait", board=other)
        assert done.exit_code == 0, done.output
        desk.keys["client_id"] = "garage-2"
        done = desk.flash("--no-wait", board=other)
        assert (done.exit_code, "has what 'garage-1' was given" in done.stderr) == (2, True), done.output


def test_what_was_given_before_is_used_and_its_place_stays_noted(desk: Desk) -> None:
    site = Site.open(desk.site)
    given = site.give_all([Wish("garage-1", holder="the left wall")])[0]
    done = desk.flash("--no-wait")
    assert done.exit_code == 0, done.output
    found = site.find("garage-1")
    assert found is not None
    assert (found.line.serial, found.line.holder) == (
        given.line.serial,
        "the left wall; board 24:6f:28:aa:bb:cc",
    )
    assert files_on(desk.board)["key.der"] == given.board_files()["key.der"]


def other_site(desk: Desk) -> Site:
    make_site(desk.folder / "valley", "valley")
    return Site.open(desk.folder / "valley")


def test_certificate_that_is_not_of_this_site_is_refused_with_the_reason(desk: Desk) -> None:
    foreign = other_site(desk).give("garage-1")
    own = Site.open(desk.site).give("garage-1")
    for name in (own.certificate, own.key):
        name.write_bytes((foreign.folder / name.name).read_bytes())
    before = desk.board.flash.read(0, 4 << 20)
    done = desk.flash("--no-wait")
    assert done.exit_code == 2
    assert f"{own.certificate}: a certificate that is not of this site: 'CN=valley " in done.stderr
    assert "and not the authority of hill" in done.stderr
    assert desk.board.flash.read(0, 4 << 20) == before


@pytest.mark.parametrize(
    ("port", "why"),
    [
        ({"certificate": "foreign.der", "key": "key.der"}, "foreign.der: a certificate that is not of this site"),
        ({"certificate": "attic.der"}, "attic.der: the certificate of 'attic', expected that of 'garage-1'"),
        ({"certificate": "noise.der"}, "noise.der: expected a certificate in PEM or DER"),
        ({"ca": "foreign-ca.pem"}, "foreign-ca.pem: the certificate of an authority that is not of this site"),
        ({"user": "garage-1", "password": "mine"}, "port.user is there, expected none: the login is the site's"),
        ({"kind": "tcp"}, 'port.kind is "tcp", expected "tls" or none with --site'),
        ({"kind": "uart", "path": "1:17:16"}, "no port leads over a network"),
        ({"colour": "red"}, "port.colour is no key"),
    ],
    ids=lambda one: str(one)[:20],
)
def test_port_that_does_not_fit_the_site_is_refused_before_anything_is_given(
    port: dict[str, Any], why: str, desk: Desk
) -> None:
    foreign, site = other_site(desk), Site.open(desk.site)
    (desk.folder / "foreign.der").write_bytes(foreign.give("garage-1").board_files()["certificate.der"])
    (desk.folder / "foreign-ca.pem").write_bytes(foreign.places.authority.read_bytes())
    (desk.folder / "attic.der").write_bytes(site.give("attic").board_files()["certificate.der"])
    (desk.folder / "noise.der").write_bytes(b"noise")
    desk.keys["port"] |= port
    done = desk.flash("--no-wait")
    assert (done.exit_code, why in done.stderr) == (2, True), done.output
    assert site.find("garage-1") is None
    assert desk.board.flash.read(0, 4 << 20) == BLANK


def test_broken_configuration_gets_nothing_from_the_site(desk: Desk) -> None:
    desk.keys["interval_ms"] = 0
    done = desk.flash("--no-wait")
    assert (done.exit_code, "interval_ms is 0" in done.stderr) == (2, True)
    assert Site.open(desk.site).lines() == {}


def test_a_gateway_that_does_not_reload_ends_the_command_before_a_board_is_written(desk: Desk) -> None:
    done = desk.flash("--reload", "exit 7")
    assert (done.exit_code, "--reload: the command ended with 7" in done.stderr) == (2, True)
    assert desk.board.flash.read(0, 4 << 20) == BLANK


def test_options_of_a_site_need_a_site() -> None:
    done = holdfast("flash", "esp32", "--port", "/dev/null", "--account")
    assert (done.exit_code, "expected --site with them" in done.stderr) == (2, True)


def test_no_file_of_the_run_is_left_or_can_be_read_by_others(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = desk.folder / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    modes: set[int] = set()
    run = process.run

    def look(words: list[str], *more: Any, **keys: Any) -> str:
        modes.update(stat.S_IMODE(one.stat().st_mode) for one in scratch.iterdir())
        return run(words, *more, **keys)

    monkeypatch.setattr("tools.cli.board.esp.loader.run", look)
    assert desk.flash("--no-wait").exit_code == 0
    assert modes == {0o700}
    assert os.listdir(scratch) == []
