import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from cloud import LanderReplaced, LandingFailed, land
from cloud.landing.file import parse_stem
from cloud.landing.folder import LandingFolder
from tests.cloud.landing.narrow_broker import narrow_broker
from tests.cloud.landing.running_lander import DEADLINE_S, RunningLander, landed, publish, wait_until
from tests.cloud.landing.script import Visit
from tests.cloud.landing.script import broker as scripted
from tools.lab.testing.mosquitto import mosquitto
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process
from wire.codec.packets import Puback
from wire.properties import USER_PROPERTY


def payloads(count: int) -> list[bytes]:
    return [b"reading %d" % number for number in range(1, count + 1)]


@pytest.fixture
def lander(broker: int, landing: Path, request: pytest.FixtureRequest) -> Iterator[RunningLander]:
    """Runs a lander with a name and a topic of this test alone: the broker serves all tests."""
    name = request.node.name.replace("[", "-").replace("]", "")
    running = RunningLander(broker, landing, name, topic_filter=f"{name}/#")
    running.wait_for("connected")
    yield running
    running.stop()


def test_row_has_every_field_of_the_message(broker: int, landing: Path, lander: RunningLander) -> None:
    name = lander.name
    properties = [("a", "b"), ("hf-via", "0000001f/42/gw-1/up"), ("hf-received", "1760000000123/gw-1")]
    properties += [("hf-id", "0000cafe/41/garage/north"), ("hf-via", "bad"), ("hf-via", "00000020/7/gw%2F2/central")]
    publish(broker, f"{name}/x", [b"[]"], UserProperty=properties, ContentType="application/senml+json")
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
        "via": [
            {"epoch": 0x1F, "number": 42, "gateway": "gw-1", "route": "up"},
            {"epoch": 0x20, "number": 7, "gateway": "gw/2", "route": "central"},
        ],
    }
    lander.wait_for("hf-via left out")


def test_message_without_identity_gets_one_of_the_lander(broker: int, landing: Path, lander: RunningLander) -> None:
    name = lander.name
    publish(broker, f"{name}/x", payloads(2), qos=1)
    publish(broker, f"{name}/x", [b"third"], UserProperty=[("hf-id", "bad"), ("hf-received", "never/gw")])
    publish(broker, f"{name}/x", [b"fourth"], qos=2)
    publish(broker, f"{name}/x", [b"fifth"], qos=0)
    wait_until(lambda: len(landed(landing)) == 5, "five rows")
    rows = landed(landing)
    (boot,) = {parse_stem(path.stem).boot for path in landing.glob("[!.]*.json")}  # type: ignore[union-attr]
    assert [(row["origin"], row["epoch"], row["seq"]) for row in rows] == [(name, boot, seq) for seq in range(1, 6)]
    assert [row["qos"] for row in rows] == [1, 1, 1, 1, 0]
    assert {row["gateway"] for row in rows} == {None}
    lander.wait_for("hf-id is not an identity")
    lander.wait_for("hf-received left out")


def test_acknowledges_after_file_and_manifest_are_synced(landing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    synced = os.fsync

    def fsync(descriptor: int) -> None:
        synced(descriptor)
        events.append(f"synced {Path(os.readlink(f'/proc/self/fd/{descriptor}')).suffix or 'folder'}")

    def publish(visit: Visit) -> None:
        for identifier in (1, 2, 3):
            visit.publish("x", b"", identifier)
        visit.receive_until(lambda packet: isinstance(packet, Puback))
        events.append(f"acknowledged with {len(list(landing.glob('[!.]*.json')))} manifest")

    monkeypatch.setattr(os, "fsync", fsync)
    with scripted(publish) as port:
        running = RunningLander(port, landing, "synced", roll_s=1)
    running.stop()
    assert events[:5] == [
        "synced .parquet",
        "synced folder",
        "synced .json",
        "synced folder",
        "acknowledged with 1 manifest",
    ]


def test_folder_that_cannot_be_written_keeps_messages_at_the_broker(
    broker: int, landing: Path, lander: RunningLander
) -> None:
    name = lander.name
    away = landing.with_name("away")
    landing.rename(away)
    publish(broker, f"{name}/x", payloads(3), hf_id="00000001/{}/garage")
    lander.wait_for(f"cannot land in {landing}: {os.strerror(errno.ENOENT)}; 3 messages stay unacknowledged")
    away.rename(landing)
    wait_until(lambda: len(landed(landing)) == 3, "the messages landed after all")
    publish(broker, f"{name}/x", [b"more"], hf_id="00000002/{}/garage")
    wait_until(lambda: len(landed(landing)) == 4, "the message after them")
    assert sum("cannot land" in line for line in lander.lines) == 1


def test_unacknowledged_messages_come_again_and_land_once(landing: Path) -> None:
    def lose(visit: Visit) -> None:
        send(visit, dup=False)

    def send_again(visit: Visit) -> None:
        send(visit, dup=True)
        visit.receive_until(lambda packet: len(visit.acknowledged) == 5)

    def send(visit: Visit, dup: bool) -> None:
        for identifier, payload in enumerate(payloads(5), start=1):
            properties = {USER_PROPERTY: [("hf-id", f"00000001/{identifier}/garage")]}
            visit.publish("x", payload, identifier, dup=dup, properties=properties)

    with scripted(lose, send_again) as port:
        running = RunningLander(port, landing, "again", roll_s=1)
    running.stop()
    assert [row["payload"] for row in landed(landing)] == payloads(5)


def test_rows_of_a_session_that_the_broker_lost_survive_another_lost_connection(landing: Path, tmp_path: Path) -> None:
    port = free_port()
    with mosquitto(tmp_path, port):
        running = RunningLander(port, landing, "forgotten-twice", roll_s=3600)
        running.wait_for("connected")
        publish(port, "x", payloads(4))
    for times in (2, 3):
        running.wait_for("lost", times=times - 1)
        with mosquitto(tmp_path, port):  # without persistence: all sessions are gone
            running.wait_for("connected", times=times)
            if times == 3:
                running.stop()
    assert [(row["seq"], row["payload"]) for row in landed(landing)] == list(enumerate(payloads(4), start=1))


def test_a_lander_of_the_same_name_elsewhere_takes_the_session_and_this_one_ends(tmp_path: Path) -> None:
    with gateway(tmp_path / "gateway") as port:
        first = RunningLander(port, tmp_path / "here", "same", roll_s=3600)
        first.wait_for("connected")
        publish(port, "x", payloads(5))
        publish(port, "x", [b"at most once"], qos=0)
        second = RunningLander(port, tmp_path / "elsewhere", "same", roll_s=3600)
        first.ended()
        second.wait_for("connected")
        publish(port, "x", [b"marker"])
        second.stop()
    assert isinstance(first.raised, LanderReplaced)
    assert str(first.raised) == (
        f"another client has connected to mqtt://127.0.0.1:{port} as same; this lander ends, "
        "and the other one gets its messages"
    )
    elsewhere = [row["payload"] for row in landed(tmp_path / "elsewhere") if row["qos"] == 1]
    assert elsewhere[:5] == payloads(5)
    assert [row["payload"] for row in landed(tmp_path / "here")] in ([], [b"at most once"])


def test_unreachable_broker_is_named_once_and_tried_again(landing: Path, tmp_path: Path) -> None:
    port = free_port()
    running = RunningLander(port, landing, "early")
    running.wait_for(f"cannot reach mqtt://127.0.0.1:{port}")
    with mosquitto(tmp_path, port):
        running.wait_for("connected to")
        running.stop()
    assert sum("cannot reach" in line for line in running.lines) == 1


def test_held_messages_land_after_the_broker_lost_the_session(landing: Path, tmp_path: Path) -> None:
    port = free_port()
    with mosquitto(tmp_path, port):
        running = RunningLander(port, landing, "forgotten", roll_s=3600)
        running.wait_for("connected")
        publish(port, "x", payloads(4), hf_id="00000001/{}/garage")
    running.wait_for("lost")
    with mosquitto(tmp_path, port):  # without persistence: all sessions are gone
        running.wait_for("connected", times=2)
        running.stop()
    assert [row["seq"] for row in landed(landing)] == [1, 2, 3, 4]


def test_lander_says_that_the_broker_lost_the_session_while_it_was_away(landing: Path, tmp_path: Path) -> None:
    said = "has no session of forgotten any more: what it kept for this lander is lost"
    port = free_port()
    times = []
    for broker in ("first", "second"):  # without a common folder, so the second one has no session
        (tmp_path / broker).mkdir()
        with mosquitto(tmp_path / broker, port):
            for _ in range(2):
                running = RunningLander(port, landing, "forgotten")
                running.wait_for("connected")
                publish(port, "x", payloads(1), hf_id="00000001/{}/garage")
                running.wait_for("landed")
                running.stop()
                times.append(sum(said in line for line in running.lines))
    assert times == [0, 0, 1, 0]


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
        publish(port, "x", payloads(3000))
        wait_until(lambda: len(landed(landing)) == 3000, "all messages")
        running.stop()
    rows = landed(landing)
    assert len({(row["origin"], row["epoch"]) for row in rows}) == 1
    assert {row["seq"]: row["payload"] for row in rows} == dict(enumerate(payloads(3000), start=1))


@contextmanager
def running(process: Process) -> Iterator[Process]:
    process.start()
    try:
        yield process
    finally:
        process.stop()


@contextmanager
def gateway(folder: Path) -> Iterator[int]:
    folder.mkdir()
    with running(Process("gateway", [sys.executable, "-m", "tests.gateway.process", str(folder)])) as process:
        yield int(process.says("listens ").split()[1])


def test_a_gateway_fills_a_file_with_more_messages_than_its_default_window(landing: Path, tmp_path: Path) -> None:
    with gateway(tmp_path / "gateway") as port:
        running = RunningLander(port, landing, "roomy", roll_s=3600, metrics_port=0)
        running.wait_for("connected")
        publish(port, "x", payloads(3000))
        running.wait_for_held(3000)
        running.stop()
    assert sum("landed" in line for line in running.lines) == 1


def test_landers_of_one_group_share_the_messages(broker: int, tmp_path: Path) -> None:
    both = [
        RunningLander(broker, tmp_path / name, name, topic_filter="shared/#", group="both") for name in ("one", "two")
    ]
    for running in both:
        running.wait_for("connected")
    publish(broker, "shared/x", payloads(20), hf_id="00000001/{}/garage")
    wait_until(lambda: sum(len(landed(tmp_path / name)) for name in ("one", "two")) >= 20, "the messages landed")
    for running in both:
        running.stop()
    assert sorted(row["seq"] for name in ("one", "two") for row in landed(tmp_path / name)) == list(range(1, 21))


HOLDFAST = [sys.executable, "-m", "tools.cli.main"]


def command(port: int, landing: Path, name: str) -> Process:
    options = {"--broker": f"mqtt://127.0.0.1:{port}", "--landing": str(landing), "--name": name}
    options |= {"--filter": f"{name}/#", "--group": name, "--roll-seconds": "3600"}
    return Process(
        "lander", [*HOLDFAST, "lander", "run", "--volatile", *[word for option in options.items() for word in option]]
    )


def stop(process: Process, number: signal.Signals = signal.SIGTERM) -> None:
    process.signal(number)
    code, lines = process.ended(DEADLINE_S)
    assert code == 0
    assert [line for line in lines if not line.startswith("lander ")] == []


def run_until_landed(port: int, landing: Path, name: str) -> None:
    """Runs the command again while messages are missing: some were still on their way when it ended."""
    while len(landed(landing)) < 10:
        with running(command(port, landing, name)) as process:
            process.says("connected")
            stop(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_command_lands_and_acknowledges_what_it_holds_when_told_to_stop(
    broker: int, landing: Path, number: signal.Signals
) -> None:
    name = f"told-{number.name}"
    with running(command(broker, landing, name)) as process:
        process.says("connected")
        publish(broker, f"{name}/x", payloads(10), hf_id="00000001/{}/garage")
        stop(process, number)
    run_until_landed(broker, landing, name)
    assert [row["payload"] for row in landed(landing)] == payloads(10)


def test_killed_command_loses_nothing(broker: int, landing: Path) -> None:
    with running(command(broker, landing, "killed")) as process:
        process.says("connected")
        publish(broker, "killed/x", payloads(10), hf_id="00000001/{}/garage")
        process.kill()
    (landing / ".killed-00000001-00000001.parquet").write_bytes(b"PAR1")
    with running(command(broker, landing, "killed")) as process:
        process.says("connected")
        assert "removed .killed-00000001-00000001.parquet" in process.lines[0]
        stop(process)
    run_until_landed(broker, landing, "killed")
    assert [row["payload"] for row in landed(landing)] == payloads(10)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"broker": "http://127.0.0.1"}, "expected mqtt://host:port or mqtts://host:port"),
        ({"broker": "mqtt://127.0.0.1:99999"}, "expected mqtt://host:port"),
        ({"broker": "mqtt://site:hunter2@127.0.0.1:99999"}, "they are `user` and `password_file`"),
        ({"name": "a/b"}, "name 'a/b': letters, digits"),
        ({"topic_filter": "a/#/b"}, "# must be the last level"),
        ({"group": "a+b"}, "no valid share name"),
        ({"roll_s": 0}, "roll_s is 0"),
    ],
)
def test_bad_argument_is_named_before_anything_is_made(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    arguments = {"broker": "mqtt://127.0.0.1", "landing": tmp_path / "landing", "stop": Event(), **change}
    with pytest.raises(ValueError, match=said) as raised:
        land(**arguments)
    assert "hunter2" not in str(raised.value)
    assert not (tmp_path / "landing").exists()


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["--broker", "mqtt://site:hunter2@127.0.0.1"], "they are `user` and `password_file`", 2),
        (["--landing", "/dev/null/x"], "Not a directory", 1),
    ],
    ids=["wrong option", "folder that may be back soon"],
)
def test_what_keeps_a_lander_from_starting_is_named_and_says_whether_a_restart_may_help(
    landing: Path, arguments: list[str], said: str, code: int
) -> None:
    argv = [*HOLDFAST, "lander", "run", "--volatile", "--landing", str(landing), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert said in done.stderr and "hunter2" not in done.stderr


def test_a_folder_in_memory_is_refused_unless_it_may_be_lost() -> None:
    folder = f"/dev/shm/holdfast-no-landing-{os.getpid()}"
    argv = [*HOLDFAST, "lander", "run", "--landing", folder, "--broker", "mqtt://127.0.0.1:1"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 2
    assert f"{folder}: on tmpfs: it is in memory" in done.stderr and "--volatile allows it" in done.stderr
    assert not os.path.exists(folder)


def test_last_landing_that_fails_is_raised_and_frees_the_name(
    broker: int, landing: Path, lander: RunningLander
) -> None:
    away = landing.rename(landing.with_name("away"))
    publish(broker, f"{lander.name}/x", [b"1"])
    lander.wait_for("cannot land")
    lander.stop()
    assert isinstance(lander.raised, LandingFailed)
    assert str(lander.raised).endswith("the broker keeps the rest")
    LandingFolder(away, lander.name, boot=1).close()
