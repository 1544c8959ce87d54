"""`holdfast device new`: from flags, from answers on a terminal, from a board, and from a table."""

import json
import os
import pty
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from zeroconf import ServiceInfo, Zeroconf

from device.config import load
from tests.support.board_tools import NEEDS_BOARD_TOOLS
from tests.support.command import holdfast
from tools.cli.new import announced
from tools.cli.new.answers import AnswerError, read_gateway, read_sensor
from tools.cli.paths import source_root
from tools.lab.micropython import MicroPython
from tools.lab.sim.loader.chips import ESP32
from tools.lab.sim.whole.esp import WholeBoard
from tools.lab.sim.whole.firmware_file import make_firmware

LOOPBACK = ("127.0.0.1",)
FLAGS = {
    "--name": "garage-1",
    "--board": "esp32",
    "--wifi": "attic",
    "--wifi-password-file": "wifi",
    "--gateway": "192.168.1.10",
    "--sensor": "adc:pin=34,full_scale_mv=3300",
}
WIRING = """
import time, machine
from tools.lab.sim.chips.bme280 import Bme280
from tools.lab.sim.chips.ds18b20 import Ds18b20
machine.connect_i2c(Bme280(time.ticks_ms, (0,) * 3, (0,) * 9, (0,) * 6, (0,) * 3), 0, 0x76)
for last in (1, 2):
    machine.connect_wire(Ds18b20(time.ticks_ms, bytes([last, 0, 0, 0, 0, 0]), 330), 4)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    secret(tmp_path / "wifi", "under the roof")
    secret(tmp_path / "login", "a secret")
    return tmp_path


def secret(path: Path, text: str) -> None:
    path.write_text(text + "\n")
    path.chmod(0o600)


def words(flags: dict[str, str]) -> list[str]:
    return [word for flag, answer in flags.items() for word in (flag, answer)]


def new(*more: str, without: tuple[str, ...] = ()) -> Any:
    return holdfast("device", "new", *words({flag: one for flag, one in FLAGS.items() if flag not in without}), *more)


def keys(path: Path) -> dict[str, Any]:
    load(str(path))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@contextmanager
def announcing(*services: tuple[str, str, int]) -> Iterator[None]:
    """Gateways that announce themselves on this computer alone."""
    with Zeroconf(interfaces=list(LOOPBACK)) as zeroconf:
        for name, kind, port in services:
            address = socket.inet_aton("127.0.0.1")
            server = f"{name}.local."
            zeroconf.register_service(ServiceInfo(kind, f"{name}.{kind}", port, addresses=[address], server=server))
        yield


def test_flags_answer_every_question_and_only_the_owner_reads_the_file(folder: Path) -> None:
    done = new("--user", "garage-1", "--password-file", "login", "--interval-s", "2.5", "--commands", "commands/%u/#")
    assert done.exit_code == 0, done.output
    assert keys(folder / "device.json") == {
        "client_id": "garage-1",
        "topic": "telemetry/garage-1",
        "network": {"ssid": "attic", "password": "under the roof"},
        "port": {"host": "192.168.1.10", "port": 1883, "user": "garage-1", "password": "a secret"},
        "flash": {"path": "holdfast"},
        "interval_ms": 2500,
        "sensors": [{"kind": "adc", "pin": 34, "full_scale_mv": 3300}],
        "status": "status/garage-1",
        "commands": "commands/garage-1/#",
        "watchdog_ms": 8000,
    }
    assert stat.S_IMODE((folder / "device.json").stat().st_mode) == 0o600
    assert "roof" not in done.output and "a secret" not in done.output


@pytest.mark.parametrize("flag", FLAGS)
def test_without_a_terminal_a_missing_answer_names_its_flag(flag: str, folder: Path) -> None:
    done = new(without=(flag,))
    assert (done.exit_code, f"add {flag}" in done.stderr) == (2, True), done.stderr
    assert not (folder / "device.json").exists()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--sensor", "adc:pin=99,full_scale_mv=1"), "sensors[1].pin is 99"),
        (("--sensor", "adc"), "sensors[1].pin is missing"),
        (("--sensor", "adc:34"), "sensor is 'adc:34', expected KIND:KEY=VALUE"),
        (("--board", "esp32c3"), "sensors[0].pin is 34, expected a pin of the ESP32-C3"),
        (("--gateway", "mqtt://a@b"), "gateway: expected no user"),
        (("--gateway", "http://a"), "gateway: 'http://a'"),
        (("--interval-s", "often"), "interval_s is 'often'"),
        (("--user", "me"), "add --password-file"),
        (("--user", "me", "--gateway", "mqtts://shed"), "the login that `holdfast flash --site` adds"),
        (("--topic", "a/#"), "topic is"),
        (("--i2c", "0:22:21"), "expected --port and no --from"),
        (("--password-file", "open", "--user", "me"), "open: others may read or change it"),
    ],
)
def test_what_the_board_would_refuse_is_refused_and_nothing_is_written(
    more: tuple[str, ...], why: str, folder: Path
) -> None:
    (folder / "open").write_text("a secret")
    done = new(*more)
    assert (done.exit_code, why in done.stderr) == (2, True), done.output
    assert not (folder / "device.json").exists()


def test_a_file_that_is_there_is_replaced_only_when_asked_and_is_private_then(folder: Path) -> None:
    (folder / "device.json").write_text("mine")
    done = new()
    assert (done.exit_code, "--replace replaces it" in done.stderr) == (2, True)
    assert (folder / "device.json").read_text() == "mine"
    assert new("--replace").exit_code == 0
    assert stat.S_IMODE((folder / "device.json").stat().st_mode) == 0o600


def test_a_gateway_with_tls_asks_for_the_time_and_leaves_the_login_to_the_site(folder: Path) -> None:
    assert new("--gateway", "mqtts://shed.local", "--open-wifi", "--ntp", "ntp.local").exit_code == 0
    found = keys(folder / "device.json")
    assert found["port"] == {"host": "shed.local", "port": 8883}
    assert found["clock"] == {"kind": "ntp", "host": "ntp.local"}
    assert found["network"] == {"ssid": "attic", "password": None}


def test_what_announces_itself_without_tls_is_said_to_be_anybody() -> None:
    plain, encrypted = (announced.Gateway("shed", read_gateway(f"{kind}://shed")) for kind in ("mqtt", "mqtts"))
    assert "without TLS: anything in this network can pose as it" in str(plain)
    assert "its certificate decides" in str(encrypted)


def test_gateways_that_announce_themselves_are_found() -> None:
    with announcing(("shed", announced.PLAIN, 1883), ("barn", announced.ENCRYPTED, 8883)):
        found = announced.look(interfaces=LOOPBACK)
    ours = sorted(f"{one.name}, {one.server}" for one in found if one.name in ("shed", "barn"))
    assert ours == ["barn, mqtts://127.0.0.1:8883", "shed, mqtt://127.0.0.1:1883"]


def test_one_of_several_gateways_is_not_guessed() -> None:
    gateways = [announced.Gateway(name, read_gateway(f"{name}.local")) for name in ("shed", "barn")]
    assert announced.the_only_one(gateways[:1]).server.host == "shed.local"
    for some in ([], gateways):
        with pytest.raises(AnswerError, match="expected one gateway that announces itself"):
            announced.the_only_one(some)


@pytest.mark.parametrize("text", ["", "1", "adc:", "adc:pin", "adc:pin=1,", "a b"])
def test_a_sensor_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(AnswerError, match="expected KIND:KEY=VALUE"):
        read_sensor(text)


def test_a_person_is_asked_for_what_is_missing_and_asked_again_after_a_mistake(folder: Path) -> None:
    conversation = [
        ("name of the device: ", "garage 1"),
        ("name of the device: ", "garage-1"),
        ("board (esp32, esp32s2, esp32s3, esp32c3, rp2): ", "esp32"),
        ("name of the Wi-Fi, - for none: ", "attic"),
        ("password of the Wi-Fi: ", "under the roof"),
        ("mqtts://HOST:PORT: ", "shed.local"),
        ("user at the gateway: ", ""),
        ("seconds between samples [60]: ", ""),
        ("sensor, as adc:pin=34,full_scale_mv=3300: ", "dht22:pin=4"),
    ]
    master, slave = pty.openpty()
    program = (
        "from tools.cli.new import announced; announced.look = lambda *_: []; from tools.cli.main import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "device", "new"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "PYTHONPATH": str(source_root())},
        start_new_session=True,
    )
    os.close(slave)
    shown = b""
    for question, answer in conversation:
        seen = b""
        while not seen.endswith(question.encode()):
            more = os.read(master, 1)
            seen, shown = seen + more, shown + more
        os.write(master, f"{answer}\n".encode())
    assert process.wait(30) == 0
    os.close(master)
    assert b"name is 'garage 1', expected" in shown
    assert b"roof" not in shown
    found = keys(folder / "device.json")
    assert (found["client_id"], found["port"]["host"], found["network"]["password"]) == (
        "garage-1",
        "shed.local",
        "under the roof",
    )


@NEEDS_BOARD_TOOLS
def test_a_board_tells_its_kind_and_its_sensors(folder: Path, micropython: MicroPython) -> None:
    with WholeBoard(folder / "board", micropython=micropython, wiring=WIRING) as board:
        board.flash.program(ESP32.bootloader_at, make_firmware(ESP32, 8 * 1024))
        board.reset()
        board.wait_printed(b">>> ")
        done = new("--port", board.port, "--i2c", "0:22:21", "--one-wire", "4", without=("--board", "--sensor"))
    assert done.exit_code == 0, done.output
    first, second, third = keys(folder / "device.json")["sensors"]
    assert first == {"kind": "bme280", "bus": 0, "scl": 22, "sda": 21, "address": "0x76"}
    assert (second["kind"], second["pin"], "name" in second, third["name"]) == ("ds18b20", 4, False, "ds18b20-2")
    assert second["rom"].startswith("2801") and third["rom"].startswith("2802")


def test_a_table_makes_a_folder_for_each_board(folder: Path) -> None:
    (folder / "in").mkdir()
    secret(folder / "in" / "other", "in the cellar")
    (folder / "in" / "boards.csv").write_text(
        "name,wifi,wifi_password_file,sensors\n"
        "garage-1,,,\n"
        'garage-2,cellar,other,"dht22:pin=4;adc:pin=34,full_scale_mv=6600"\n'
    )
    flags = ("--from", "in/boards.csv", "--out", "made", "--topic", "telemetry/%u/air")
    done = new(*flags, without=("--name",))
    assert done.exit_code == 0, done.output
    first, second = (keys(folder / "made" / name / "device.json") for name in ("garage-1", "garage-2"))
    assert (first["client_id"], first["topic"], first["network"]["password"]) == (
        "garage-1",
        "telemetry/garage-1/air",
        "under the roof",
    )
    assert (second["network"], [one["kind"] for one in second["sensors"]]) == (
        {"ssid": "cellar", "password": "in the cellar"},
        ["dht22", "adc"],
    )
    assert new(*flags, without=("--name",)).exit_code == 0
    done = new(*flags, "--interval-s", "5", without=("--name",))
    assert (done.exit_code, "made/garage-1/device.json is there with other content" in done.stderr) == (2, True)
    assert stat.S_IMODE((folder / "made" / "garage-1").stat().st_mode) == 0o700


def test_bad_rows_are_named_with_file_and_line_before_anything_is_written(folder: Path) -> None:
    (folder / "boards.csv").write_text("name,sensors,gateway\na,,\nb,adc:pin=1,\nc,adc,\nd,,http://x\n")
    done = new("--from", "boards.csv", without=("--name",))
    assert done.exit_code == 2
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == [f"boards.csv:{line}" for line in (3, 4, 5)]
    assert not (folder / "devices").exists()


def test_a_row_without_an_answer_names_the_flag(folder: Path) -> None:
    (folder / "boards.csv").write_text("name\na\n")
    done = new("--from", "boards.csv", without=("--name", "--gateway"))
    assert (done.exit_code, "boards.csv:2: " in done.stderr, "add --gateway" in done.stderr) == (2, True, True)
