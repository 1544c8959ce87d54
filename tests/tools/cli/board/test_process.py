"""How the tools of board makers are run, and how what they and a board say is printed."""

import json
from pathlib import Path

import pytest

from tools.cli.board.errors import BoardError
from tools.cli.board.process import run
from tools.cli.board.progress import Progress
from tools.cli.board.rp2.uf2 import Uf2, copy_to_drive


def test_a_tool_takes_no_module_from_the_folder_in_which_the_command_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may have put one there, as in /tmp."""
    monkeypatch.chdir(tmp_path)
    for name in ("serial", "json", "esptool", "mpremote", "click"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    for words in (["esptool", "version"], ["mpremote", "--version"], ["json.tool", "--help"]):
        run(words, "port", 60.0)
    assert not (tmp_path / "ran").exists()


def test_what_a_board_says_of_itself_does_not_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    named = json.loads('"Pico\\u001b]0;owned\\u0007\\u009b2J\\u202e"')
    progress.say(f"{named}: MicroPython 1.27.0\nsecond line")
    with progress.step(f"rescued 3 messages of {named}"):
        pass
    said = capsys.readouterr().out
    assert said.count("\n") == 3 and all(one.isprintable() for one in said.splitlines())
    assert "Pico?]0;owned??2J?" in said


def test_an_error_of_a_tool_ends_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="port: no_such_tool failed"):
        run(["no_such_tool"], "port", 60.0)


def test_a_drive_whose_file_is_a_link_gets_no_firmware(tmp_path: Path) -> None:
    drive, precious = tmp_path / "RPI-RP2", tmp_path / "precious"
    drive.mkdir()
    precious.write_text("kept")
    (drive / "INFO_UF2.TXT").write_text("Board-ID: RPI-RP2")
    (drive / "holdfast.uf2").symlink_to(precious)
    with pytest.raises(BoardError, match="symbolic links"):
        copy_to_drive(Uf2(tmp_path / "firmware.uf2", b"UF2", "RP2040", "1.27.0"), drive)
    assert precious.read_text() == "kept"
