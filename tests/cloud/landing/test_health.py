"""`/healthz` and `/metrics` of a lander."""

import http.client
from pathlib import Path

import pytest

from tests.cloud.landing.running_lander import RunningLander, landed, publish, wait_until
from tests.support.mosquitto import mosquitto
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
    port, health = free_port(), free_port()
    running = RunningLander(port, landing, "unwell", metrics_port=health)
    running.wait_for("cannot reach")
    assert get(health, "/healthz") == (
        503,
        f"cannot reach mqtt://127.0.0.1:{port}: Connection refused; trying again until it answers\n",
    )
    with mosquitto(tmp_path, port):
        running.wait_for("connected to")
        away = landing.rename(landing.with_name("away"))
        publish(port, "x", [b"1"])
        running.wait_for("cannot land")
        status, text = get(health, "/healthz")
        assert (status, text.startswith(f"cannot land in {landing}: No such file or directory")) == (503, True)
        away.rename(landing)
        wait_until(lambda: get(health, "/healthz") == (200, "ok\n"), "all is well again")
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
