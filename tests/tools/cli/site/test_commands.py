"""The commands of `holdfast site`, as an operator types them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from typer.testing import Result

from tests.house.repository import ROOT
from tests.support.command import holdfast
from tools.cli.gateway.config import read_configuration
from tools.cli.site.site import Site

PASSPHRASE = "under the roof"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    done = holdfast("site", "init", "--name", "hill")
    assert done.exit_code == 0, done.stderr
    return tmp_path / "site"


def refused(*arguments: str) -> str:
    done = holdfast("site", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    return done.stderr


def done(*arguments: str) -> list[str]:
    result: Result = holdfast("site", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


def test_what_was_given_to_several_devices_is_listed_and_ends_one_by_one(folder: Path) -> None:
    said = done("device", "attic", "cellar", "--days", "30", "--holder", "box 7")
    assert [line.partition(":")[0] for line in said[:2]] == ["attic", "cellar"]
    assert said[0].endswith("in site/devices/attic") and "site/gateway" in said[2]
    done("device", "barn", "--password")
    done("revoke", "attic")
    rows = [line.split() for line in done("list")]
    assert [row[:3] for row in rows[1:4]] == [
        ["attic", "certificate", "revoked"],
        ["cellar", "certificate", "given"],
        ["barn", "password", "given"],
    ]
    assert rows[1][5:7] == ["box", "7"] and rows[4][:2] == ["site", "hill:"]
    objects = json.loads(done("list", "--json")[0])
    assert [(one["name"], one["state"], one["has_files"]) for one in objects] == [
        ("attic", "revoked", False),
        ("cellar", "given", True),
        ("barn", "given", True),
    ]


def test_a_gateways_configuration_is_one_that_check_config_takes(folder: Path) -> None:
    text = "\n".join(done("gateway", "gw", "--host", "gw.local", "--host", "192.0.2.1"))
    path = folder.parent / "gateway.toml"
    path.write_text(f'name = "gw"\n{text}\n[store]\npath = "store"\nvolatile = true\n')
    configuration = read_configuration(path)
    assert len(configuration.config.listener) == 2 and configuration.warnings == []


def test_rights_can_be_chosen(folder: Path) -> None:
    done("device", "attic", "--publish", "plant/%u/#", "--publish", "state/%u", "--subscribe", "to/%u/+")
    rules = (folder / "gateway/access").read_text().splitlines()
    assert rules[-4:-1] == [
        "allow attic publish 'plant/attic/#'",
        "allow attic publish state/attic",
        "allow attic subscribe to/attic/+",
    ]


def test_bad_input_ends_with_2_and_a_line_and_gives_nothing(folder: Path, tmp_path: Path) -> None:
    assert "a/b" in refused("device", "attic", "a/b")
    assert f"holdfast site device: {tmp_path}: not a site" in refused("device", "attic", "--site", str(tmp_path))
    assert "expected names, or --certificate FILE" in refused("revoke")
    assert "expected names, or --certificate FILE" in refused("revoke", "attic", "--certificate", "a.pem")
    assert "none.pem: No such file" in refused("revoke", "--certificate", "none.pem")
    assert "'attic' has nothing of this site" in refused("revoke", "attic")
    assert "it is a site already" in refused("init")
    done("device", "attic")
    assert "'attic' was given on" in refused("device", "barn", "attic")
    assert [line.name for line in Site.open(folder).lines().values()] == ["attic"]


def test_a_ledger_from_an_old_backup_is_told(folder: Path) -> None:
    old = (folder / "ledger.sqlite").read_bytes()
    done("device", "attic")
    for path in folder.glob("ledger.sqlite*"):
        path.unlink()
    (folder / "ledger.sqlite").write_bytes(old)
    listed = holdfast("site", "list")
    assert listed.exit_code == 0 and "devices/attic: not in the ledger" in listed.stderr
    given = holdfast("site", "device", "barn")
    assert given.exit_code == 0 and "the ledger had no line of attic" in given.stderr
    done("list")


def with_passphrase(passphrase: bytes, *arguments: str) -> Result:
    """Runs a command with a passphrase at a file descriptor."""
    reading, writing = os.pipe()
    os.write(writing, passphrase)
    os.close(writing)
    try:
        ended = holdfast("site", *arguments, "--passphrase-fd", str(reading))
    finally:
        os.close(reading)
    assert PASSPHRASE not in ended.output
    return ended


def test_the_passphrase_comes_from_a_file_descriptor(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    site = f"--site={folder}"
    assert with_passphrase(PASSPHRASE.encode(), "init", site).exit_code == 0
    load_pem_private_key((folder / "authority.key").read_bytes(), PASSPHRASE.encode())
    assert with_passphrase(f"{PASSPHRASE}\r\n".encode(), "device", "attic", site).exit_code == 0
    for passphrase, complaint in (
        (b"", "expected the passphrase of the site key, one line"),
        (b"\n", "expected the passphrase of the site key, one line"),
        (b"x" * 2000, "expected the passphrase of the site key, one line"),
        (b"another one", "the passphrase does not open it"),
    ):
        ended = with_passphrase(passphrase, "revoke", "attic", site)
        assert (ended.exit_code, ended.stdout) == (2, "") and complaint in ended.stderr
    assert "--passphrase-fd 999: Bad file descriptor" in refused("revoke", "attic", site, "--passphrase-fd", "999")
    assert all(line.state == "given" for line in Site.open(folder).lines().values())
    assert not any(PASSPHRASE.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_without_a_terminal_the_passphrase_is_a_line_of_standard_input(tmp_path: Path) -> None:
    for command in (["init", "--encrypt"], ["device", "attic"]):
        argv = [sys.executable, "-m", "tools.cli.main", "site", *command, "--site", str(tmp_path / "site")]
        ended = subprocess.run(argv, cwd=ROOT, input=f"{PASSPHRASE}\n", capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (0, "") and PASSPHRASE not in ended.stdout
