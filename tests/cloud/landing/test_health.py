"""`/healthz` and `/metrics` of a lander."""

import contextlib
import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud.landing import health
from cloud.landing.health import CONNECTIONS_MOST, HealthServer, Metrics
from tests.cloud.landing.running_lander import RunningLander, landed, publish, wait_until
from tools.lab.testing.mosquitto import mosquitto
from tools.lab.testing.ports import free_port


def get(port: int, path: str, host: str = "localhost") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"Host": host})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def metrics_of(port: int) -> dict[str, float]:
    lines = get(port, "/metrics")[1].splitlines()
    return {name: float(value) for name, value in (line.split() for line in lines if not line.startswith("#"))}


def test_a_lander_says_that_it_is_well_and_what_it_has_landed(broker: int, landing: Path) -> None:
    port = free_port()
    running = RunningLander(broker, landing, "well", topic_filter="well", metrics_port=port)
    running.wait_for("connected")
    assert get(port, "/healthz") == (200, "ok\n")
    publish(broker, "well", [b"1", b"2", b"3"])
    wait_until(lambda: metrics_of(port)["holdfast_lander_messages_total"] >= 3, "three messages in the metrics")
    metrics = metrics_of(port)
    running.stop()
    files = [path for path in landing.glob("*.parquet") if not path.name.startswith(".")]
    assert len(landed(landing)) == 3
    assert metrics["holdfast_lander_files_total"] == len(files)
    assert metrics["holdfast_lander_bytes_total"] == sum(path.stat().st_size for path in files)
    assert (metrics["holdfast_lander_connected"], metrics["holdfast_lander_held_messages"]) == (1, 0)
    assert metrics["holdfast_lander_last_landed_timestamp_seconds"] > 1.7e9
    with pytest.raises(ConnectionRefusedError):
        get(port, "/healthz")


def test_health_names_what_keeps_messages_from_landing(landing: Path, tmp_path: Path) -> None:
    port, metrics_port = free_port(), free_port()
    running = RunningLander(port, landing, "unwell", metrics_port=metrics_port)
    running.wait_for("cannot reach")
    assert get(metrics_port, "/healthz") == (
        503,
        f"cannot reach mqtt://127.0.0.1:{port}: Connection refused; trying again until it answers\n",
    )
    with mosquitto(tmp_path, port):
        running.wait_for("connected to")
        away = landing.rename(landing.with_name("away"))
        publish(port, "x", [b"1"])
        running.wait_for("cannot land")
        status, text = get(metrics_port, "/healthz")
        assert (status, text.startswith(f"cannot land in {landing}: No such file or directory")) == (503, True)
        away.rename(landing)
        wait_until(lambda: get(metrics_port, "/healthz") == (200, "ok\n"), "all is well again")
        running.stop()


def test_other_paths_and_names_of_other_sites_get_nothing(broker: int, landing: Path) -> None:
    port = free_port()
    running = RunningLander(broker, landing, "shy", topic_filter="shy", metrics_port=port)
    running.wait_for("connected")
    assert get(port, "/")[0] == 404
    assert get(port, "/metrics", host="attacker.example")[0] == 403
    assert get(port, "/metrics", host="127.0.0.1:80")[0] == 200
    running.stop()


def test_a_port_that_is_taken_is_named_before_a_message_is_taken(broker: int, landing: Path) -> None:
    running = RunningLander(broker, landing, "taken", metrics_port=broker)
    running.ended()
    assert isinstance(running.raised, OSError)
    assert running.lines == []


@pytest.fixture
def server() -> Iterator[HealthServer]:
    answering = HealthServer(0, Metrics(), list)
    yield answering
    answering.close()


def slow(port: int) -> socket.socket:
    """A client whose request never ends."""
    line = socket.create_connection(("127.0.0.1", port), timeout=30)
    line.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
    return line


def test_clients_that_send_slowly_hold_no_other_client(server: HealthServer) -> None:
    """The oldest one ends for each that is too many."""
    with contextlib.ExitStack() as lines:
        opened = [lines.enter_context(slow(server.port)) for _ in range(CONNECTIONS_MOST)]
        assert get(server.port, "/healthz") == (200, "ok\n")
        assert opened[0].recv(1) == b""
        opened[-1].sendall(b"localhost\r\n\r\n")
        assert opened[-1].recv(12) == b"HTTP/1.0 200"


def test_a_client_that_never_ends_its_request_is_ended(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CONNECTION_DEADLINE_S", 0.0)
    with slow(server.port) as line:
        assert line.recv(1) == b""
