"""The firmware on a real MicroPython with a real mosquitto: MQTT 3.1.1 and 5, TCP and TLS."""

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage

from tests.support.subscriber import subscriber
from tools.lab.micropython import MicroPython
from tools.lab.testing.certificates import Authority
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.ports import free_port

PROGRAMS = Path(__file__).parent / "programs"
LONG_S = 180
BIG = 65_536
VERSIONS = pytest.mark.parametrize("version", ["3.1.1", "5"])
WAYS = pytest.mark.parametrize("tls", [False, True], ids=["TCP", "TLS"])


class Talk:
    """Programs of the folder `programs` on the VM, with a broker of their own.

    Args:
        lines: more of the broker's configuration.
        change: keys of the device's.
    """

    def __init__(
        self, vm: MicroPython, folder: Path, version: str, tls: bool = False, lines: str = "", **change: Any
    ) -> None:
        self._vm = vm
        self._config = folder / "device.json"
        self._error = folder / "device.err"
        port: dict[str, Any] = {"kind": "tcp", "host": "127.0.0.1"}
        if tls:
            authority = Authority(folder)
            certificate, key = authority.server()
            (folder / "ca.der").write_bytes(ssl.PEM_cert_to_DER_cert(authority.path.read_text()))
            tls_port = free_port()
            files = f"cafile {authority.path}\ncertfile {certificate}\nkeyfile {key}\n"
            lines += f"\nlistener {tls_port} 127.0.0.1\n{files}"
            port |= {"kind": "tls", "port": tls_port, "ca": str(folder / "ca.der"), "server_name": "localhost"}
        self.broker = Mosquitto(folder, lines)
        keys = {
            "client_id": "device",
            "topic": "device",
            "port": {"port": self.broker.port, **port},
            "flash": {"path": str(folder / "flash.bin"), "sector_count": 64},
            "mqtt_version": version,
            "interval_ms": 86_400_000,
            "clock": "none",
            "sensors": [],
            "readings_limit": 0,
            "journal": None,
            **change,
        }
        self._config.write_text(json.dumps(keys))

    @contextmanager
    def run(self, *program: str) -> Iterator["Said"]:
        """Returns what the program found; fails unless it ended with exit code 0."""
        command = [*self._vm.argv, "-X", "heapsize=2m", str(PROGRAMS / program[0]), *program[1:], str(self._config)]
        with (
            self._error.open("w") as error,
            subprocess.Popen(
                command, env=self._vm.environment(), stdout=subprocess.PIPE, stderr=error, text=True
            ) as process,
        ):
            deadline = threading.Timer(LONG_S, process.kill)
            deadline.start()
            try:
                said = Said(process)
                yield said
                list(said)
                assert process.wait() == 0, self._error.read_text()
            finally:
                deadline.cancel()
                process.kill()

    def said(self, *program: str) -> "Said":
        with self.run(*program) as said:
            pass
        return said


class Said:
    """The `values` that a program has found, one after the other, and all `lines` of the firmware so far."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.lines: list[str] = []
        self.values: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("> "):
                self.lines.append(line.rstrip())
                continue
            self.values.append(json.loads(line[2:]))
            yield self.values[-1]

    @property
    def sessions(self) -> list[bool]:
        """For each connection, whether the broker still had its session."""
        return ["to its old session" in line for line in self.lines if line.startswith("connected to")]


@contextmanager
def running(broker: Mosquitto) -> Iterator[None]:
    broker.start()
    try:
        yield
    finally:
        broker.stop()


def publish(port: int, topic: str, numbers: range, qos: int, *options: str) -> None:
    """Publishes each line with mosquitto_pub; returns when all are acknowledged."""
    lines = "".join(f"{number}\n" for number in numbers)
    command = ["mosquitto_pub", "-p", str(port), "-t", topic, "-q", str(qos), "-l", *options]
    subprocess.run(command, input=lines, text=True, check=True, timeout=LONG_S)


@VERSIONS
@WAYS
def test_what_a_device_sends_at_each_qos_arrives_once_and_in_order(
    micropython: MicroPython, tmp_path: Path, version: str, tls: bool
) -> None:
    talk = Talk(micropython, tmp_path, version, tls, qos=0)
    with running(talk.broker), subscriber(talk.broker.port, "up/#", 2) as received:
        assert talk.said("talk.py", "publish").sessions == [False]
        came = [received.get(timeout=LONG_S) for _ in range(60)]
    for qos in range(3):
        assert [int(m.payload) for m in came if m.topic == f"up/{qos}"] == list(range(qos, 60, 3))
        assert {m.qos for m in came if m.topic == f"up/{qos}"} == {qos}


@VERSIONS
@WAYS
def test_what_a_device_is_sent_at_each_qos_is_done_and_answered_once_and_in_order(
    micropython: MicroPython, tmp_path: Path, version: str, tls: bool
) -> None:
    talk = Talk(micropython, tmp_path, version, tls, commands="down/#")
    with running(talk.broker), subscriber(talk.broker.port, "device/answer", 2) as answers:
        with talk.run("talk.py", "echo") as said:
            assert next(iter(said)) == "subscribed"
            for qos in range(3):
                publish(talk.broker.port, f"down/{qos}", range(20), qos)
        answered = [json.loads(answers.get(timeout=LONG_S).payload)["took"] for _ in range(60)]
    taken = said.values[-1]
    assert [number for _, number in taken] == answered
    for qos in range(3):
        assert [number for topic, number in taken if topic == f"down/{qos}"] == list(range(20))


def commands_taken(seen: list[list[int]]) -> list[int]:
    """The commands' numbers as they were acted on, without commands that the broker began anew after their PUBREL.

    mosquitto 2.0.11 may forget in a restart that it has sent a PUBREL. Then it sends the PUBLISH again, which
    [MQTT-4.3.3-6] forbids, and a device cannot tell it from a new message.
    """
    first_at: dict[int, int] = {}
    for at, (number, *identifier) in enumerate(seen):
        if not identifier:
            continue  # a PUBREL
        if number in first_at:
            assert identifier in seen[first_at[number] : at], f"command {number} was taken twice"
        first_at.setdefault(number, at)
    return list(first_at)


@VERSIONS
@WAYS
def test_a_session_goes_on_over_the_brokers_restarts(
    micropython: MicroPython, tmp_path: Path, version: str, tls: bool
) -> None:
    talk = Talk(micropython, tmp_path, version, tls, commands="down/#")
    talk.broker.start()
    counter = ["mosquitto_sub", "-p", str(talk.broker.port), "-i", "counter", "-c", "-q", "2", "-t", "up/#"]
    subprocess.run([*counter, "-E"], check=True, timeout=LONG_S)  # its session gathers all
    try:
        with talk.run("talk.py", "resume") as said:
            assert next(iter(said)) == "subscribed"
            for step in range(4):
                publish(talk.broker.port, "down/2", range(10 * step, 10 * step + 10), 2)
                talk.broker.stop()
                talk.broker.start()
        counted = subprocess.run(
            [*counter, "-C", "120", "-W", "60"], text=True, capture_output=True, timeout=LONG_S, check=True
        ).stdout.split()
    finally:
        talk.broker.stop()
    assert said.sessions[0] is False and all(said.sessions[1:]) and len(said.sessions) >= 2
    assert commands_taken(said.values[-1]) == list(range(40))
    assert list(map(int, counted)) == list(range(1, 121))


@VERSIONS
def test_the_will_of_a_device_that_is_gone_is_published(micropython: MicroPython, tmp_path: Path, version: str) -> None:
    talk = Talk(micropython, tmp_path, version, status="will/device")
    with running(talk.broker), subscriber(talk.broker.port, "will/#", 2) as received:
        assert talk.said("talk.py", "will").values == ["connected"]
        online: MQTTMessage = received.get(timeout=LONG_S)
        will: MQTTMessage = received.get(timeout=LONG_S)
    assert json.loads(online.payload)["status"] == "online"
    assert (will.topic, will.payload, will.qos) == ("will/device", b'{"status": "lost"}', 1)


@VERSIONS
def test_what_a_device_retains_is_there_for_newcomers_and_a_retained_command_is_not_obeyed(
    micropython: MicroPython, tmp_path: Path, version: str
) -> None:
    talk = Talk(micropython, tmp_path, version, commands="down/#")
    with running(talk.broker):
        publish(talk.broker.port, "down/2", range(1), 2, "-r")
        with talk.run("talk.py", "retained") as said:
            assert next(iter(said)) == "subscribed"
            publish(talk.broker.port, "down/2", range(1, 2), 2)
        assert said.values[-1] == [["down/2", 1]]
        with subscriber(talk.broker.port, "kept/#", 2) as received:
            kept = received.get(timeout=LONG_S)
    assert (kept.payload, kept.retain, kept.qos) == (b"7", True, 2)


@VERSIONS
@WAYS
def test_64_kb_go_both_ways_over_a_receive_maximum_of_1(
    micropython: MicroPython, tmp_path: Path, version: str, tls: bool
) -> None:
    talk = Talk(micropython, tmp_path, version, tls, lines="max_inflight_messages 1")
    with running(talk.broker), subscriber(talk.broker.port, "up/#", 2) as received, talk.run("big.py") as said:
        assert next(iter(said)) == "subscribed"
        for number in range(4):
            content = tmp_path / "content"
            content.write_bytes(bytes([number]) * BIG)
            command = ["mosquitto_pub", "-p", str(talk.broker.port), "-t", "down/2", "-q", "2", "-f", str(content)]
            subprocess.run(command, check=True, timeout=LONG_S)
        for number in range(4):
            assert received.get(timeout=LONG_S).payload == bytes([number]) * BIG
    assert said.values[1:] == [1 if version == "5" else 65535] * 4
