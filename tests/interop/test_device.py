"""wire's ClientConnection on a real MicroPython with a real mosquitto: MQTT 3.1.1 and 5, TCP and TLS."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage

from tests.support.mosquitto import subscriber
from tools.micropython import MicroPython
from tools.sim.mosquitto import Mosquitto

PROGRAM = Path(__file__).parent / "programs" / "talk.py"
LONG_S = 60
BIG = 65_536
VERSIONS = pytest.mark.parametrize("level", [4, 5], ids=["3.1.1", "5"])
WAYS = pytest.mark.parametrize("tls", [False, True], ids=["TCP", "TLS"])


class Talk:
    """A scenario of `programs/talk.py` on the VM, with a broker of its own kind."""

    def __init__(self, vm: MicroPython, folder: Path, level: int, tls: bool = False, lines: str = "") -> None:
        self._vm = vm
        self._level = level
        self._flash = folder / "flash.bin"
        self._extra = []
        self._tls_port = 0
        self.plain = Mosquitto(folder, lines)
        if tls:
            make_certificates(folder)
            (folder / "tls").mkdir()
            probe = Mosquitto(folder / "tls")
            self._tls_port = probe.port
            self._extra = [str(folder / "ca.der")]
            files = f"cafile {folder}/ca.pem\ncertfile {folder}/server.pem\nkeyfile {folder}/server.key\n"
            self.plain = Mosquitto(folder, f"{lines}\nlistener {self._tls_port} 127.0.0.1\n{files}")

    @contextmanager
    def run(self, scenario: str) -> Iterator["subprocess.Popen[str]"]:
        """The program's process; it must have ended well afterwards."""
        port = self._tls_port or self.plain.port
        arguments = [str(PROGRAM), scenario, str(port), str(self._level), str(self._flash), *self._extra]
        command = [*self._vm.argv, "-X", "heapsize=2m", *arguments]
        with subprocess.Popen(command, env=self._vm.environment(), stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
                assert process.wait(LONG_S) == 0
            finally:
                process.kill()

    def said(self, scenario: str) -> list[Any]:
        with self.run(scenario) as process:
            return list(said(process))


def said(process: "subprocess.Popen[str]") -> Iterator[Any]:
    assert process.stdout is not None
    return map(json.loads, process.stdout)


def make_certificates(folder: Path) -> None:
    """A CA and a server's certificate of it, for localhost."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    ca = ["-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test CA"]
    request = [*curve, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost"]
    sign = ["-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "server.pem"]
    for command in (["req", *ca], ["req", *request], ["x509", *sign, "-days", "30"]):
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)
    subprocess.run(
        ["openssl", "x509", "-in", "ca.pem", "-outform", "DER", "-out", "ca.der"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip


@contextmanager
def running(broker: Mosquitto) -> Iterator[None]:
    broker.start()
    try:
        yield
    finally:
        broker.stop()


def publish(port: int, topic: str, numbers: range, qos: int) -> None:
    """mosquitto_pub, a message a line, each acknowledged."""
    lines = "".join(f"{number}\n" for number in numbers)
    command = ["mosquitto_pub", "-p", str(port), "-t", topic, "-q", str(qos), "-l"]
    subprocess.run(command, input=lines, text=True, check=True, timeout=LONG_S)


@VERSIONS
@WAYS
def test_what_a_device_sends_at_each_qos_arrives_once_and_in_order(
    micropython: MicroPython, tmp_path: Path, level: int, tls: bool
) -> None:
    talk = Talk(micropython, tmp_path, level, tls)
    with running(talk.plain), subscriber(talk.plain.port, "up/#", 2) as received:
        assert talk.said("publish") == [[False]]
        came = [received.get(timeout=LONG_S) for _ in range(60)]
    for qos in range(3):
        assert [int(m.payload) for m in came if m.topic == f"up/{qos}"] == list(range(qos, 60, 3))
        assert {m.qos for m in came if m.topic == f"up/{qos}"} == {qos}


@VERSIONS
@WAYS
def test_what_a_device_is_sent_at_each_qos_arrives_once_and_in_order(
    micropython: MicroPython, tmp_path: Path, level: int, tls: bool
) -> None:
    talk = Talk(micropython, tmp_path, level, tls)
    with running(talk.plain), talk.run("echo") as process:
        lines = said(process)
        assert next(lines) == "subscribed"
        for qos in range(3):
            publish(talk.plain.port, f"down/{qos}", range(20), qos)
        came = [next(lines) for _ in range(60)]
    for qos in range(3):
        assert [number for at, _, number in came if at == qos] == list(range(20))


def commands_taken(commands: list[tuple[int, int, bool]], releases: list[tuple[int, int]]) -> list[int]:
    """The commands' numbers as they came, without those that the broker began anew after their PUBREL.

    mosquitto 2.0.11 may forget in a restart that it has sent a PUBREL. Then it sends the PUBLISH again, which
    [MQTT-4.3.3-6] forbids, and nobody can tell it from a new message.
    """
    first_at: dict[int, int] = {}
    for at, (number, identifier, dup) in enumerate(commands):
        if number in first_at:
            released = any(of == identifier and first_at[number] < when <= at for of, when in releases)
            assert dup and released, f"command {number} was taken twice"
        first_at.setdefault(number, at)
    return list(first_at)


@VERSIONS
@WAYS
def test_a_session_goes_on_over_the_brokers_restarts(
    micropython: MicroPython, tmp_path: Path, level: int, tls: bool
) -> None:
    talk = Talk(micropython, tmp_path, level, tls)
    talk.plain.start()
    counter = ["mosquitto_sub", "-p", str(talk.plain.port), "-i", "counter", "-c", "-q", "2", "-t", "up/#"]
    subprocess.run([*counter, "-E"], check=True, timeout=LONG_S)  # its session gathers all
    try:
        with talk.run("resume") as process:
            lines = said(process)
            assert next(lines) == "subscribed"
            for step in range(4):
                publish(talk.plain.port, "down/2", range(10 * step, 10 * step + 10), 2)
                talk.plain.stop()
                talk.plain.start()
            sessions, commands, releases = list(lines)
        counted = subprocess.run(
            [*counter, "-C", "120", "-W", "20"], text=True, capture_output=True, timeout=LONG_S, check=True
        ).stdout.split()
    finally:
        talk.plain.stop()
    assert sessions[0] is False and all(sessions[1:]) and len(sessions) >= 2
    assert commands_taken(commands, releases) == list(range(40))
    assert list(map(int, counted)) == list(range(1, 121))


@VERSIONS
def test_the_will_of_a_device_that_is_gone_is_published(micropython: MicroPython, tmp_path: Path, level: int) -> None:
    talk = Talk(micropython, tmp_path, level)
    with running(talk.plain), subscriber(talk.plain.port, "will/#", 2) as received:
        assert talk.said("will") == ["connected"]
        will: MQTTMessage = received.get(timeout=LONG_S)
    assert (will.topic, will.payload, will.qos) == ("will/device", b"gone", 2)


@VERSIONS
def test_a_retained_message_is_there_for_newcomers(micropython: MicroPython, tmp_path: Path, level: int) -> None:
    talk = Talk(micropython, tmp_path, level)
    with running(talk.plain):
        assert talk.said("retained") == [[["kept/device", 2, True, 7]]]
        with subscriber(talk.plain.port, "kept/#", 2) as received:
            kept = received.get(timeout=LONG_S)
    assert (kept.payload, kept.retain) == (b"7", True)


@VERSIONS
@WAYS
def test_64_kb_go_both_ways_over_a_receive_maximum_of_1(
    micropython: MicroPython, tmp_path: Path, level: int, tls: bool
) -> None:
    talk = Talk(micropython, tmp_path, level, tls, lines="max_inflight_messages 1")
    with (
        running(talk.plain),
        subscriber(talk.plain.port, "up/#", 2) as received,
        talk.run("big") as process,
    ):
        lines = said(process)
        assert next(lines) == "subscribed"
        for number in range(4):
            content = tmp_path / "content"
            content.write_bytes(bytes([number]) * BIG)
            command = ["mosquitto_pub", "-p", str(talk.plain.port), "-t", "down/2", "-q", "2", "-f", str(content)]
            subprocess.run(command, check=True, timeout=LONG_S)
        assert list(lines) == [1 if level == 5 else 65535] * 4
        for number in range(4):
            assert received.get(timeout=LONG_S).payload == bytes([number]) * BIG
