import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client

from cloud.lander import parse_broker
from tests.cloud.narrow_broker import narrow_broker
from tests.cloud.running_lander import DEADLINE_S, RunningLander, landed, publisher, wait_until
from tests.support.mosquitto import free_port, mosquitto


def payloads(count: int) -> list[bytes]:
    return [b"reading %d" % number for number in range(1, count + 1)]


@pytest.fixture
def lander(broker: int, landing: Path, request: pytest.FixtureRequest) -> Iterator[RunningLander]:
    """A lander with a name and a topic of this test's own: the broker serves all tests."""
    name = request.node.name.replace("[", "-").replace("]", "")
    running = RunningLander(broker, landing, name, f"{name}/#")
    running.wait_for("connected")
    yield running
    running.stop()


def test_row_says_all_that_the_message_said(broker: int, landing: Path, lander: RunningLander) -> None:
    name = lander.folder.lander
    with publisher(broker) as client:
        properties = [("a", "b"), ("hf-received", "1760000000123/gw-1"), ("hf-id", "0000cafe/41/garage/north")]
        client.publish(f"{name}/x", [b"[]"], UserProperty=properties, ContentType="application/senml+json")
    wait_until(lambda: bool(landed(landing)), "the message in a landing file")
    (row,) = landed(landing)
    assert row.pop("landed_ms") > 1_700_000_000_000
    assert row == {
        "origin": "garage/north",
        "epoch": 0xCAFE,
        "seq": 41,
        "received_ms": 1_760_000_000_123,
        "gateway": "gw-1",
        "topic": f"{name}/x",
        "qos": 1,
        "retain": False,
        "content_type": "application/senml+json",
        "payload": b"[]",
        "lander": name,
    }


def test_message_without_identity_gets_one_of_the_lander(broker: int, landing: Path, lander: RunningLander) -> None:
    name = lander.folder.lander
    with publisher(broker) as client:
        client.publish(f"{name}/x", payloads(2), qos=1)
        client.publish(f"{name}/x", [b"third"], UserProperty=[("hf-id", "bad"), ("hf-received", "never/gw")])
        client.publish(f"{name}/x", [b"fourth"], qos=2)
        client.publish(f"{name}/x", [b"fifth"], qos=0)
    wait_until(lambda: len(landed(landing)) == 5, "five rows")
    rows = landed(landing)
    assert [(row["origin"], row["epoch"], row["seq"]) for row in rows] == [
        (name, lander.folder.boot, seq) for seq in range(1, 6)
    ]
    assert [row["qos"] for row in rows] == [1, 1, 1, 1, 0]
    assert {row["gateway"] for row in rows} == {None}
    lander.wait_for("hf-id is not an identity")
    lander.wait_for("hf-received left out")


def test_acknowledges_only_what_is_on_the_disk_with_its_manifest(
    broker: int, landing: Path, lander: RunningLander, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = lander.folder.lander
    events: list[str] = []
    synced, acknowledged = os.fsync, Client.ack

    def fsync(descriptor: int) -> None:
        synced(descriptor)
        events.append(f"synced {Path(os.readlink(f'/proc/self/fd/{descriptor}')).suffix or 'folder'}")

    def ack(client: Client, mid: int, qos: int) -> Any:
        events.append(f"acknowledged with {len(list(landing.glob('[!.]*.json')))} manifest")
        return acknowledged(client, mid, qos)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Client, "ack", ack)
    with publisher(broker) as client:
        client.publish(f"{name}/x", payloads(3), hf_id="00000001/{}/garage")
    wait_until(lambda: len(events) >= 7, "three acknowledgements")
    assert (
        events
        == ["synced .parquet", "synced folder", "synced .json", "synced folder"] + ["acknowledged with 1 manifest"] * 3
    )


def test_folder_that_cannot_be_written_keeps_messages_at_the_broker(
    broker: int, landing: Path, lander: RunningLander
) -> None:
    name = lander.folder.lander
    away = landing.with_name("away")
    landing.rename(away)
    with publisher(broker) as client:
        client.publish(f"{name}/x", payloads(3), hf_id="00000001/{}/garage")
        lander.wait_for(f"cannot land in {landing}: {os.strerror(errno.ENOENT)}; 3 messages stay unacknowledged")
        away.rename(landing)
        wait_until(lambda: len(landed(landing)) == 3, "the messages landed after all")
        client.publish(f"{name}/x", [b"more"], hf_id="00000002/{}/garage")
        wait_until(lambda: len(landed(landing)) == 4, "and those that followed")
    assert sum("cannot land" in line for line in lander.lines) == 1


def test_what_was_not_acknowledged_comes_again(broker: int, landing: Path) -> None:
    first = RunningLander(broker, landing, "again", "again/#", roll_s=3600)
    first.wait_for("connected")
    with publisher(broker) as client:
        client.publish("again/x", payloads(5), hf_id="00000001/{}/garage")
    wait_until(lambda: len(first.lander._held.rows) == 5, "the messages at the lander")
    first.lander._client.socket().close()  # type: ignore[union-attr]  # the connection dies, the broker notices
    first.wait_for("lost")
    wait_until(lambda: sum("connected" in line for line in first.lines) == 2, "a second connection")
    wait_until(lambda: len(first.lander._held.rows) == 5, "the same messages, sent again")
    first.stop()
    assert [row["payload"] for row in landed(landing)] == payloads(5)


def test_broker_that_is_not_there_is_named_once_and_waited_for(landing: Path, tmp_path: Path) -> None:
    port = free_port()
    running = RunningLander(port, landing, "early")
    running.wait_for(f"cannot reach mqtt://127.0.0.1:{port}")
    with mosquitto(tmp_path, port):
        running.wait_for("connected to")
        running.stop()
    assert sum("cannot reach" in line for line in running.lines) == 1


def test_broker_that_lost_the_session_does_not_lose_what_is_held(landing: Path, tmp_path: Path) -> None:
    port = free_port()
    with mosquitto(tmp_path, port):
        running = RunningLander(port, landing, "forgotten", roll_s=3600)
        running.wait_for("connected")
        with publisher(port) as client:
            client.publish("x", payloads(4), hf_id="00000001/{}/garage")
        wait_until(lambda: len(running.lander._held.rows) == 4, "the messages at the lander")
    running.wait_for("lost")
    with mosquitto(tmp_path, port):  # without persistence: a new life, all sessions gone
        wait_until(lambda: sum("connected" in line for line in running.lines) == 2, "a second connection")
        running.stop()
    assert [row["seq"] for row in landed(landing)] == [1, 2, 3, 4]


def test_broker_with_a_small_window_is_not_left_waiting(landing: Path) -> None:
    with narrow_broker(payloads(400), window=20) as port:
        running = RunningLander(port, landing, "narrow", roll_s=1.5)
        wait_until(lambda: len(landed(landing)) == 400, "all messages, though a roll of 20 takes 1.5 s")
        running.stop()
    assert sum("at most 20 messages" in line for line in running.lines) == 1, running.lines
    assert [row["payload"] for row in landed(landing)] == payloads(400)


def test_our_own_gateway_serves_a_lander(landing: Path, tmp_path: Path) -> None:
    with gateway(tmp_path / "gateway") as port:
        running = RunningLander(port, landing, "ours")
        running.wait_for("connected")
        with publisher(port) as client:
            client.publish("x", payloads(3000))
        wait_until(lambda: len(landed(landing)) == 3000, "all messages")
        running.stop()
    rows = landed(landing)
    assert len({(row["origin"], row["epoch"]) for row in rows}) == 1
    assert {row["seq"]: row["payload"] for row in rows} == dict(enumerate(payloads(3000), start=1))


@contextmanager
def gateway(folder: Path) -> Iterator[int]:
    folder.mkdir()
    command = [sys.executable, "-m", "tests.gateway.process", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield int(process.stdout.readline().split()[0])
        process.terminate()


def test_landers_of_one_group_share_the_messages(broker: int, tmp_path: Path) -> None:
    both = [RunningLander(broker, tmp_path / name, name, "shared/#", group="both") for name in ("one", "two")]
    for running in both:
        running.wait_for("connected")
    with publisher(broker) as client:
        client.publish("shared/x", payloads(20), hf_id="00000001/{}/garage")
    wait_until(lambda: sum(len(landed(tmp_path / name)) for name in ("one", "two")) >= 20, "the messages landed")
    for running in both:
        running.stop()
    assert sorted(row["seq"] for name in ("one", "two") for row in landed(tmp_path / name)) == list(range(1, 21))


def holdfast(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", "from tools.cli import main; main()", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_command(port: int, landing: Path, name: str) -> "subprocess.Popen[str]":
    options = {"--broker": f"mqtt://127.0.0.1:{port}", "--landing": str(landing), "--name": name}
    options |= {"--filter": f"{name}/#", "--group": name, "--roll-seconds": "3600"}
    return holdfast("lander", "run", *[word for option in options.items() for word in option])


def read_until(process: "subprocess.Popen[str]", text: str) -> list[str]:
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"no {text!r} in {lines}")


def stop(process: "subprocess.Popen[str]", number: signal.Signals = signal.SIGTERM) -> str:
    process.send_signal(number)
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, errors) == (0, "")
    return output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_command_lands_and_acknowledges_what_it_holds_when_told_to_stop(
    broker: int, landing: Path, number: signal.Signals
) -> None:
    name = f"told-{number.name}"
    with run_command(broker, landing, name) as process:
        read_until(process, "connected")
        with publisher(broker) as client:
            client.publish(f"{name}/x", payloads(10), hf_id="00000001/{}/garage")
        stop(process, number)
    while len(landed(landing)) < 10:  # what was still on its way to it when it was told
        with run_command(broker, landing, name) as process:
            read_until(process, "connected")
            stop(process, number)
    assert [row["payload"] for row in landed(landing)] == payloads(10)


def test_killed_command_loses_nothing(broker: int, landing: Path) -> None:
    with run_command(broker, landing, "killed") as process:
        read_until(process, "connected")
        with publisher(broker) as client:
            client.publish("killed/x", payloads(10), hf_id="00000001/{}/garage")
        process.kill()
    (landing / ".killed-00000001-00000001.parquet").write_bytes(b"PAR1")
    with run_command(broker, landing, "killed") as process:
        lines = read_until(process, "connected")
        assert "removed .killed-00000001-00000001.parquet" in lines[0]
        stop(process)
    while len(landed(landing)) < 10:
        with run_command(broker, landing, "killed") as process:
            read_until(process, "connected")
            stop(process)
    assert [row["payload"] for row in landed(landing)] == payloads(10)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--broker", "http://127.0.0.1"], "not of the form mqtt://host:port"),
        (["--broker", "mqtt://127.0.0.1:99999"], "Port out of range"),
        (["--broker", "mqtt://site:hunter2@127.0.0.1"], "a lander cannot log in yet"),
        (["--broker", "mqtt://site:hunter2@127.0.0.1:99999"], "a lander cannot log in yet"),
        (["--name", "a/b"], "it becomes a file name"),
        (["--filter", "a/#/b"], "# must be the last level"),
        (["--group", "a+b"], "no valid share name"),
        (["--landing", "/dev/null/x"], "Not a directory"),
    ],
)
def test_bad_option_is_named_and_ends_with_2(landing: Path, arguments: list[str], said: str) -> None:
    process = holdfast("lander", "run", *["--landing", str(landing), *arguments])
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, errors.count("\n")) == (2, 1)
    assert said in errors
    assert "hunter2" not in errors


def test_port_of_the_broker_may_be_left_out() -> None:
    assert parse_broker("mqtt://[::1]:1884") == ("::1", 1884)
    assert parse_broker("mqtt://central.example/") == ("central.example", 1883)
