"""``holdfast multicast listen`` beside a gateway's process."""

import json
import os
import random
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import holdfast
from tests.tools.cli.gateway.running import HOLDFAST, LONG_S, Gateway
from tools.lab.testing.certificates import Authority
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process
from wire.multicast import DATAGRAM_MAX, LAYOUT

TABLES = """\
[[listener]]
kind = "tcp"
port = {tls_port}
tls.certificate = "server.pem"
tls.key = "server.key"
[[multicast]]
name = "wall"
address = "239.192.7.8"
port = {port}
topics = ["displays/#"]
interface = "{interface}"
"""


class Wall(Gateway):
    """A gateway with a multicast group."""

    def __init__(self, folder: Path, interface: str = "lo") -> None:
        Authority(folder).server()
        self.folder, self.interface = folder, interface
        self.tls_port, self.group_port = free_port(), free_port()
        listener = TABLES.format(tls_port=self.tls_port, port=self.group_port, interface=interface)
        super().__init__(folder, listener=listener)

    @contextmanager
    def listening(self, *options: str, wrapper: Sequence[str] = ()) -> Iterator[Process]:
        command = ["multicast", "listen", "--broker", f"mqtts://localhost:{self.tls_port}"]
        command += ["--interface", self.interface, "--ca", str(self.folder / "authority.pem"), *options]
        process = Process("a display", [*wrapper, *HOLDFAST, *command])
        process.start()
        try:
            process.says(f"listening to 239.192.7.8 port {self.group_port}", LONG_S)
            yield process
        finally:
            process.kill()


def publish(wall: Wall, topic: str, *message: str, wrapper: Sequence[str] = ()) -> None:
    argv = [*wrapper, "mosquitto_pub", "-V", "5", "-p", str(wall.port), "-q", "1", "-t", topic, *message]
    subprocess.run(argv, check=True, timeout=LONG_S)


@pytest.fixture
def other_network() -> Iterator[list[str]]:
    """What runs a command in a network of its own, where it may make and remove interfaces."""
    name = f"holdfast-{os.getpid()}"
    try:
        subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"networks need root and the package iproute2: {getattr(error, 'stderr', error)}")
    inside = ["ip", "netns", "exec", name]
    try:
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        yield inside
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def plug_in(inside: Sequence[str]) -> None:
    for command in (
        "link add wall0 type veth peer name wall1",
        "address add 10.9.8.1/24 dev wall0",
        "link set wall1 up",
        "link set wall0 up",
    ):
        subprocess.run([*inside, "ip", *command.split()], check=True)


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [*HOLDFAST, "multicast", "listen", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, check=False)


def test_it_prints_what_its_filters_match_and_at_the_end_what_was_lost(tmp_path: Path) -> None:
    wall = Wall(tmp_path)
    with wall.running(), wall.listening("--filter", "displays/1") as display:
        publish(wall, "displays/2", "-m", "other")
        publish(wall, "displays/1", "-m", "gr\u00fcn")
        assert display.says("displays/1", LONG_S) == "displays/1 gr\u00fcn"
        display.signal(signal.SIGINT)
        assert display.ended(LONG_S)[0] == 0
        assert not any("other" in line for line in display.lines)
        said = display.lines[-1]
        assert said.startswith("2 messages in ")
        assert said.endswith(" datagrams; lost: 0 messages, 0 datagrams; datagrams refused: none")


def test_it_prints_json_with_any_payload_and_messages_that_came_over_tls(tmp_path: Path) -> None:
    wall = Wall(tmp_path)
    binary, large = tmp_path / "binary", tmp_path / "large"
    binary.write_bytes(b"\xff\0")
    large.write_text("x" * 2000)
    with wall.running(), wall.listening("--filter", "displays/#", "--group", "wall", "--json") as display:
        for topic, file in (("displays/1", binary), ("displays/2", large)):
            publish(wall, topic, "-f", str(file))
        shown = [json.loads(display.says(topic, LONG_S)) for topic in ("displays/1", "displays/2")]
        assert shown[0] == {"topic": "displays/1", "payload_base64": "/wA=", "retain": False, "over": "multicast"}
        assert (shown[1]["over"], shown[1]["payload"]) == ("tls", "x" * 2000)
        display.signal(signal.SIGTERM)
        assert display.ended(LONG_S)[0] == 0
        end = json.loads(display.lines[-1])
        assert (end["messages"], end["lost_messages"], end["lost_datagrams"], end["refused"]) == (1, 0, 0, {})


def test_it_goes_on_with_the_new_key_when_the_gateway_has_started_anew(tmp_path: Path) -> None:
    wall = Wall(tmp_path)
    with wall.running():
        listening = wall.listening("--filter", "displays/#")
        display = listening.__enter__()
        publish(wall, "displays/1", "-m", "before")
        assert display.says("before", LONG_S)
    with wall.running():
        wall.wait_for_event("multicast key handed out")
        publish(wall, "displays/1", "-m", "after")
        assert display.says("after", LONG_S) == "displays/1 after"
    listening.__exit__(None, None, None)
    assert any("; connecting again" in line for line in display.lines)


def test_it_goes_on_when_its_interface_has_gone_and_come_back(tmp_path: Path, other_network: list[str]) -> None:
    plug_in(other_network)
    wall = Wall(tmp_path, "wall0")
    with wall.running(*other_network), wall.listening("--filter", "displays/#", wrapper=other_network) as display:
        publish(wall, "displays/1", "-m", "before", wrapper=other_network)
        assert display.says("before", LONG_S)
        subprocess.run([*other_network, "ip", "link", "delete", "wall0"], check=True)
        assert display.says("no datagram for 5 s", LONG_S)
        plug_in(other_network)
        assert display.says("datagrams come again", LONG_S)
        publish(wall, "displays/1", "-m", "after", wrapper=other_network)
        assert display.says("after", LONG_S) == "displays/1 after"


def test_it_ends_with_the_program_that_reads_its_lines(tmp_path: Path) -> None:
    wall = Wall(tmp_path)
    command = ["multicast", "listen", "--broker", f"mqtts://localhost:{wall.tls_port}", "--interface", "lo"]
    command += ["--ca", str(tmp_path / "authority.pem"), "--filter", "displays/#"]
    with wall.running():
        display = subprocess.Popen([*HOLDFAST, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert display.stdout is not None and display.stderr is not None
        assert "listening to" in display.stderr.readline()
        publish(wall, "displays/1", "-m", "1")
        assert display.stdout.readline() == "displays/1 1\n"
        display.stdout.close()
        publish(wall, "displays/1", "-m", "2")
        said = display.stderr.read()
        assert display.wait(LONG_S) == 0
        assert said.startswith("2 messages in ") and "Traceback" not in said
        display.stderr.close()


def test_hostile_datagrams_cost_it_no_line_and_no_memory(tmp_path: Path, seed: int) -> None:
    chance, wall = random.Random(seed), Wall(tmp_path)
    with (
        wall.running(),
        wall.listening("--filter", "displays/#") as display,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        stranger.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))

        def attack() -> int:
            for number in range(10_000):
                head = LAYOUT + bytes((0, 0, 0, 1)) if number % 2 else b""
                noise = chance.randbytes(chance.randrange(1, DATAGRAM_MAX - len(head)))
                stranger.sendto(head + noise, ("239.192.7.8", wall.group_port))
            publish(wall, f"displays/{chance.random()}", "-m", "marker")
            return display.status("VmRSS")

        attack()
        before_kb = attack()
        for _ in range(3):
            after_kb = attack()
        assert after_kb - before_kb < 512
        publish(wall, "displays/last", "-m", "last")
        assert display.says("displays/last", LONG_S)
        display.signal(signal.SIGINT)
        _, lines = display.ended(LONG_S)
        assert len(lines) == 8  # where it listens, six messages, the losses
        refused = sum(map(int, re.findall(r"(?:size|layout|key|epoch|replayed|forged|malformed) (\d+)", lines[-1])))
        assert refused > 1000  # the system drops what the socket has no room for


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--broker", "mqtt://localhost", "--filter", "a"), "expected mqtts://host:port; a key comes over TLS alone"),
        (("--broker", "mqtts://", "--filter", "a"), "expected mqtts://host:port"),
        (("--broker", "mqtts://a:99999", "--filter", "a"), "expected mqtts://host:port"),
        (("--broker", "mqtts://a", "--filter", "a#"), "--filter: "),
        (("--broker", "mqtts://a", "--filter", "a", "--ca", "/missing.pem"), "No such file"),
        (("--broker", "mqtts://a", "--filter", "a", "--password-file", "/missing"), "/missing: No such file"),
        (("--broker", "mqtts://a", "--filter", "a", "--key", "/missing"), "certificate and key belong together"),
    ],
)
def test_bad_options_are_told_with_exit_code_2(options: tuple[str, ...], text: str) -> None:
    done = holdfast("multicast", "listen", *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert text in done.stderr
    assert done.stderr.startswith("holdfast multicast listen: ")


def test_a_gateway_that_gives_no_key_or_is_not_there_is_told_with_exit_code_1(tmp_path: Path) -> None:
    wall = Wall(tmp_path)
    at = ("--broker", f"mqtts://localhost:{wall.tls_port}", "--ca", str(tmp_path / "authority.pem"))
    assert "onnect" in run(*at, "--filter", "displays/#").stderr
    with wall.running():
        done = run(*at, "--filter", "others")
        assert (done.returncode, done.stdout) == (1, "")
        assert "hf-multicast: no multicast group has all that 'others' matches" in done.stderr
        done = run(*at, "--filter", "displays/1", "--interface", "missing0")
        assert (done.returncode, "missing0" in done.stderr) == (1, True), done.stderr
        other = run("--broker", f"mqtts://localhost:{wall.tls_port}", "--filter", "displays/1")
        assert (other.returncode, "certificate verify failed" in other.stderr) == (1, True)
