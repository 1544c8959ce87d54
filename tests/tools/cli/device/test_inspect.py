"""`holdfast device inspect` as its users call it."""

import ast
import json
from binascii import crc32
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from flash_store.incoming import Incoming
from flash_store.log import Log
from tests.house.repository import ROOT
from tests.tools.cli.flash.images import SECTORS, formatted, sector_size_of
from tools.cli.device.inspect import inspect
from tools.cli.flash.layout import FREE_SIZE, open_offset
from tools.lab.sim.nor import NorFlash

SECTOR_SIZE = sector_size_of(16)

app = typer.Typer()
app.command()(inspect)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def report(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def saved(flash: NorFlash, tmp_path: Path) -> Path:
    path = tmp_path / "garage.bin"
    path.write_bytes(flash.image)
    return path


@pytest.fixture
def flash() -> NorFlash:
    return formatted()


@pytest.fixture
def image(flash: NorFlash, tmp_path: Path) -> Path:
    """Three messages, the second of them acknowledged."""
    log = Log(flash)
    log.append("telemetry/garage", b'{"n":"temperature"}')
    log.acknowledge(log.append("telemetry/garage", b"done"))
    log.append("telemetry/garage", b"\x00\x01\xfe", qos=2, retain=True)
    log.flush()
    path = tmp_path / "garage.bin"
    path.write_bytes(flash.image)
    return path


def test_messages_are_shown_with_what_a_publish_has(image: Path) -> None:
    first, second = report(image, "--sector-size", SECTOR_SIZE)["messages"]
    assert (first["id"], first["qos"], first["retain"], first["topic"]) == (1, 1, False, "telemetry/garage")
    assert (first["size"], first["payload"]) == (19, '{"n":"temperature"}')
    assert (second["id"], second["qos"], second["retain"], second["size"]) == (3, 2, True, 3)
    assert second["payload"] == "0x0001fe"


def test_the_text_says_the_same(image: Path) -> None:
    text = run(image, "--sector-size", SECTOR_SIZE).stdout
    assert "store 00c0ffee: granule 16, 10 sectors of 1024 bytes, boot 1, last id 3" in text
    assert 'QoS 1, telemetry/garage, 19 bytes: {"n":"temperature"}' in text
    assert "QoS 2, retain, telemetry/garage, 3 bytes: 0x0001fe" in text


def test_each_sector_is_shown_with_its_state_and_erases(image: Path) -> None:
    sectors = report(image, "--sector-size", SECTOR_SIZE)["sectors"]
    assert [sector["state"] for sector in sectors].count("used") == 1
    assert [sector["state"] for sector in sectors].count("free") == SECTORS - 1
    (used,) = [sector for sector in sectors if sector["state"] == "used"]
    assert (used["sector_seq"], used["live"]) == (1, 2)
    assert all(sector["erases"] >= 1 for sector in sectors)


def test_a_long_payload_is_shown_by_its_start(flash: NorFlash, tmp_path: Path) -> None:
    Log(flash).append("topic", "grün ".encode() * 20)
    (message,) = report(saved(flash, tmp_path), "--sector-size", SECTOR_SIZE)["messages"]
    assert message["size"] == 120
    assert message["payload"] == "grün " * 8 + "…"


def both(path: Path) -> tuple[Any, str]:
    """The report as JSON and as text."""
    return report(path, "--sector-size", SECTOR_SIZE), run(path, "--sector-size", SECTOR_SIZE).stdout


def test_settings_are_shown_as_text_or_in_hex(flash: NorFlash, tmp_path: Path) -> None:
    log = Log(flash)
    log.settings.set("tz", b"UTC")
    log.settings.set("key", b"\x01\xff")
    for secret in ("message", "place", "scram0"):
        log.settings.set(secret, b"a password")
    log.settings.set("gone", b"x")
    log.settings.remove("gone")
    found, text = both(saved(flash, tmp_path))
    hidden = "(10 bytes, not shown)"
    assert found["settings"] == {"key": "0x01ff", "message": hidden, "place": hidden, "scram0": hidden, "tz": "UTC"}
    assert f"settings: 5\n  key = 0x01ff\n  message = {hidden}\n" in text and "a password" not in text


def test_both_sides_of_qos_2_are_shown(flash: NorFlash, tmp_path: Path) -> None:
    log = Log(flash)
    log.append("cmd", b"on", qos=2)
    log.note_pubrec(log.append("cmd", b"off", qos=2))
    for identifier in (7, 8, 9):
        Incoming(log.settings).add(identifier)
    Incoming(log.settings).remove(8)
    found, text = both(saved(flash, tmp_path))
    assert [message["pubrec"] for message in found["messages"]] == [False, True]
    assert found["received"] == [7, 9]
    assert "QoS 2, PUBREC came, cmd, 3 bytes: off" in text
    assert "packet identifiers received, not released: 2\n  7\n  9\n" in text


def test_gaps_are_shown_with_their_reasons(flash: NorFlash, tmp_path: Path) -> None:
    log = Log(flash, on_full="drop_oldest")
    while not log.gaps():
        last = log.append("t", b"x" * 200)
    ((first, dropped, count, _),) = log.gaps()
    flash.image[flash.image.rindex(b"x" * 200)] ^= 1
    assert last not in [message[0] for message in log.messages()]
    log.flush()
    found, text = both(saved(flash, tmp_path))
    assert found["gaps"] == [
        {"first": first, "last": dropped, "count": count, "reason": "dropped"},
        {"first": last, "last": last, "count": 1, "reason": "unreadable"},
    ]
    assert (
        f"gaps: 2\n  {count} of messages {first} to {dropped}: dropped for room\n  message {last}: unreadable" in text
    )


def test_what_the_next_mount_does_is_foretold(image: Path) -> None:
    found, text = both(image)
    assert found["next_mount"] == {"boot_id": 2, "damaged": [], "leaves_out": None, "drops": [], "erases": []}
    assert text.endswith("\nnext mount: boot 2\n")


def test_an_id_that_the_next_mount_leaves_out_is_told(flash: NorFlash, tmp_path: Path) -> None:
    log = Log(flash)
    log.append("t", b"first")
    log.append("t", b"perhaps sent")
    flash.image[flash.image.index(b"perhaps")] ^= 1
    found, text = both(saved(flash, tmp_path))
    assert found["next_mount"]["leaves_out"] == 2
    assert "leaves out id 2: a torn record may have been sent with it" in text
    assert Log(flash).gaps() == [(2, 2, 1, "torn")]


def test_a_free_sector_that_is_not_blank_is_to_be_erased_again(image: Path) -> None:
    content = bytearray(image.read_bytes())
    content[7 * SECTOR_SIZE + 300] = 0
    image.write_bytes(content)
    found, text = both(image)
    assert (found["sectors"][7]["state"], found["sectors"][7]["problem"]) == ("free", "not blank")
    assert found["next_mount"]["erases"] == [7]
    assert "erases sector 7 again before its use" in text


def test_one_flipped_bit_in_a_header_is_told_and_costs_nothing(image: Path) -> None:
    before = report(image, "--sector-size", SECTOR_SIZE)
    (used,) = [sector["number"] for sector in before["sectors"] if sector["state"] == "used"]
    for at, problem in ((5, "FREE's crc is "), (open_offset(16) + 3, "one flipped bit in OPEN")):
        content = bytearray(image.read_bytes())
        content[used * SECTOR_SIZE + at] ^= 4
        other = image.with_name("flipped.bin")
        other.write_bytes(content)
        found = report(other, "--sector-size", SECTOR_SIZE)
        assert found["messages"] == before["messages"]
        assert found["sectors"][used]["problem"].startswith(problem)


def test_wear_is_that_of_the_sectors_headers(flash: NorFlash, tmp_path: Path) -> None:
    log = Log(flash)
    for _ in range(100):
        log.acknowledge(log.append("t", b"x" * 200))
        log.idle()
    found, text = both(saved(flash, tmp_path))
    assert [sector["erases"] for sector in found["sectors"]] == flash.erase_counts
    least, most, total = min(flash.erase_counts), max(flash.erase_counts), sum(flash.erase_counts)
    assert found["wear"] == {"least": least, "most": most, "all": total}
    assert f"wear: {least} to {most} erases of a sector, {total} in all" in text


def test_a_newer_version_of_the_format_is_refused(image: Path) -> None:
    content = bytearray(image.read_bytes())
    header = content[7 * SECTOR_SIZE : 7 * SECTOR_SIZE + FREE_SIZE - 4]
    header[2] = 3
    content[7 * SECTOR_SIZE : 7 * SECTOR_SIZE + FREE_SIZE] = header + crc32(header).to_bytes(4, "little")
    image.write_bytes(content)
    result = run(image, "--sector-size", SECTOR_SIZE)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "sector 7 has format version 3, known here: up to 2" in result.stderr


def test_a_bad_record_is_named_with_its_place_and_hides_no_other(image: Path) -> None:
    content = bytearray(image.read_bytes())
    at = content.index(b"temperature")
    content[at] ^= 0x10
    image.write_bytes(content)
    found = report(image, "--sector-size", SECTOR_SIZE)
    assert [message["id"] for message in found["messages"]] == [3]
    (bad,) = found["bad_records"]
    assert bad["offset"] <= at < bad["offset"] + bad["size"]
    assert f"at {bad['offset']}" in run(image, "--sector-size", SECTOR_SIZE).stdout


def test_a_sector_whose_header_is_ruined_is_named_with_the_reason(image: Path) -> None:
    content = bytearray(image.read_bytes())
    content[7 * SECTOR_SIZE : 7 * SECTOR_SIZE + 8] = b"garbage!"
    image.write_bytes(content)
    last = report(image, "--sector-size", SECTOR_SIZE)["sectors"][7]
    assert last["state"] == "unusable"
    assert "begins with 67 61, expected 48 46" in last["problem"]


def test_the_file_is_left_as_it_is(image: Path) -> None:
    before = (image.read_bytes(), image.stat().st_mtime_ns)
    run(image, "--sector-size", SECTOR_SIZE)
    assert (image.read_bytes(), image.stat().st_mtime_ns) == before


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "0 bytes are not whole sectors of 4096"),
        (b"a" * 5000, "5000 bytes are not whole sectors of 4096"),
        (b"\xff" * 8192, "no valid FREE in any of 2 sectors of 4096 bytes; 2 of them: blank"),
        (b"#!" * 4096, "no valid FREE in any of 2 sectors of 4096 bytes; 2 of them: begins with 23 21"),
    ],
)
def test_where_there_is_no_store_it_says_what_is_there(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "other.bin"
    path.write_bytes(content)
    result = run(path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"holdfast device inspect: no store in {path}: {reason}" in result.stderr


def test_a_store_elsewhere_in_the_file_is_told(image: Path) -> None:
    image.write_bytes(b"\xff" * 256 + image.read_bytes() + b"\xff" * (SECTOR_SIZE - 256))
    result = run(image, "--sector-size", SECTOR_SIZE)
    assert result.exit_code == 1
    assert "no sector of 1024 bytes begins with a valid FREE, but bytes at 256 do" in result.stderr


def test_a_file_that_is_not_there_is_bad_usage(tmp_path: Path) -> None:
    result = run(tmp_path / "missing.bin")
    assert result.exit_code == 2
    assert "missing.bin: No such file" in result.stderr


def test_the_reader_uses_nothing_of_the_store() -> None:
    for path in (ROOT / "tools/cli/flash").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.startswith("flash_store")], path.name
