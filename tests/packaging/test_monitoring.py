"""The alert rules for Prometheus and the board for Grafana, with a real gateway, promtool and Prometheus."""

import json
import re
import shutil
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cloud.landing.health import Metrics as LanderMetrics
from tests.house.repository import ROOT
from tools.lab.testing.gateway import Gateway
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Server

RULES = ROOT / "packaging/prometheus/holdfast.rules.yml"
BOARD = ROOT / "packaging/grafana/holdfast.json"
SERIES = Path(__file__).with_name("alerts.yml")
METRIC = re.compile(r"\b(?:holdfast|process)_[a-z0-9_]+|\bup\b")
SELECTED = re.compile(r"(\w+)\{([^}]*)\}")
TABLES = """
[metrics]
port = {metrics}
[[route]]
name = "central"
broker = "mqtt://127.0.0.1:{unreachable}"
[[neighbour]]
name = "other"
"""
PROMETHEUS = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: holdfast
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
DEADLINE_S = 60.0

needs_prometheus = pytest.mark.skipif(
    shutil.which("promtool") is None or shutil.which("prometheus") is None,
    reason="prometheus is not installed (apt install prometheus)",
)


def rules() -> list[str]:
    return re.findall(r"^ +expr: (.+)$", RULES.read_text(), re.MULTILINE)


def board_queries() -> list[str]:
    """The queries of the board, with its variables as Grafana sets them."""
    panels = json.loads(BOARD.read_text())["panels"]
    found = [one["expr"] for panel in panels for one in panel["targets"]]
    return [one.replace("$gateway", ".*").replace("$__rate_interval", "1m") for one in found]


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, int]]:
    """A gateway with a route and a neighbour that cannot be reached, and the port of its metrics."""
    folder, port = tmp_path_factory.mktemp("gateway"), free_port()
    running = Gateway(folder, TABLES.format(metrics=port, unreachable=free_port()))
    running.start()
    try:
        running.wait_ready()
        yield running, port
    finally:
        running.stop()


@pytest.fixture(scope="module")
def shown(gateway: tuple[Gateway, int]) -> dict[str, set[str]]:
    """The labels of each metric that a gateway or a lander shows."""
    texts = [fetch(f"http://127.0.0.1:{gateway[1]}/metrics"), LanderMetrics().text().decode()]
    labels: dict[str, set[str]] = {"up": set()}
    for text in texts:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def test_queries_ask_for_metrics_and_labels_that_there_are(shown: dict[str, set[str]]) -> None:
    for query in [*rules(), *board_queries()]:
        named = METRIC.findall(query)
        assert named and set(named) <= set(shown), query
        for metric, selectors in SELECTED.findall(query):
            asked = set(re.findall(r"(\w+)(?:=|!)", selectors))
            assert asked <= shown[metric] | {"instance", "job"}, query
        for grouped in re.findall(r"by \(([^)]*)\)", query):
            assert set(grouped.split(", ")) <= shown[named[0]] | {"instance", "le"}, query


def test_an_alert_names_labels_that_its_query_gives(shown: dict[str, set[str]]) -> None:
    for rule in RULES.read_text().split("- alert: ")[1:]:
        metric = METRIC.findall(rule[rule.index("expr:") :])[0]
        assert set(re.findall(r"\$labels\.(\w+)", rule)) <= shown[metric] | {"instance"}


def test_panels_of_the_board_do_not_overlap_and_fit_its_24_columns() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(BOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells and all(0 <= x < 24 for x, _ in cells), panel["title"]
        taken |= cells


@needs_prometheus
def test_each_alert_fires_when_it_should_and_not_before() -> None:
    done = subprocess.run(["promtool", "test", "rules", SERIES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(re.findall(r"alert: (\w+)", RULES.read_text())) == set(
        re.findall(r"alertname: (\w+)", SERIES.read_text())
    )


@pytest.fixture(scope="module")
def prometheus(
    gateway: tuple[Gateway, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Any]]:
    """A Prometheus that watches the gateway; returns the results of a query."""
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    config = folder / "prometheus.yml"
    config.write_text(PROMETHEUS.format(rules=RULES, port=gateway[1]))
    listen = f"127.0.0.1:{port}"
    argv = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={listen}",
    ]
    server = Server("prometheus", argv, ready="Server is ready")

    def ask(query: str) -> Any:
        return json.loads(fetch(f"http://{listen}/api/v1/query?query={urllib.parse.quote(query)}"))["data"]["result"]

    server.start()
    try:
        server.wait_ready()
        yield ask
    finally:
        server.stop()


@needs_prometheus
def test_the_board_shows_what_a_real_prometheus_has_of_a_gateway(prometheus: Callable[[str], Any]) -> None:
    until(lambda: prometheus("count_over_time(holdfast_connections[1m]) > 2"), "three scrapes")
    empty = [query for query in board_queries() if not prometheus(query)]
    assert [query for query in empty if "lander" not in query] == []
    assert [one["value"][1] for one in prometheus('holdfast_route_connected{route="central"}')] == ["0"]


@needs_prometheus
def test_a_fault_of_a_gateway_is_an_alert(gateway: tuple[Gateway, int], prometheus: Callable[[str], Any]) -> None:
    running, _ = gateway
    assert prometheus("holdfast_faults")[0]["value"][1] == "0"
    before = running.config.read_text()
    running.config.write_text("no TOML")
    running.signal(signal.SIGHUP)
    until(lambda: prometheus('ALERTS{alertname="HoldfastFault"}'), "the alert")
    running.config.write_text(before)
    running.signal(signal.SIGHUP)
    until(lambda: not prometheus('ALERTS{alertname="HoldfastFault"}'), "its end")
