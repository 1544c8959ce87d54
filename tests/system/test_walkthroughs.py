"""The pages that a user walks through, walked through: their commands are typed as they stand there."""

import configparser
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.mosquitto import free_port
from tools.paths import source_root

DEADLINE_S = 170
SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shell_blocks(page: str) -> list[str]:
    return SHELL_BLOCK.findall((source_root() / "docs" / page).read_text())


class Terminal:
    """A folder with the command in it, as in a clone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = folder / "holdfast"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tools.cli "$@"\n')
        command.chmod(0o755)
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(source_root()),
            "PYTHONUNBUFFERED": "1",
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def type(self, block: str) -> str:
        """Types the commands, returns what they print; fails where one of them does."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, f"{block}\nexit code {done.returncode}:\n{done.stdout}"
        return done.stdout

    @contextmanager
    def background(self, block: str) -> Iterator["Background"]:
        """Types a command that stays in the background, and ends it at the end."""
        assert block.rstrip().endswith("&")
        with subprocess.Popen(
            ["bash", "-c", "exec " + block.rstrip().removesuffix("&")],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                yield Background(process)
            finally:
                process.terminate()


class Background:
    """What a background process says."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def end(self) -> int:
        """Tells it to end; returns its exit code."""
        self._process.terminate()
        return self._process.wait(DEADLINE_S)

    def says(self, text: str) -> None:
        """Reads on to a line that holds ``text``; fails where the process ends or stays silent for long."""
        assert self._process.stdout is not None
        silence = threading.Timer(DEADLINE_S, self._process.kill)
        silence.start()
        said = []
        try:
            for line in self._process.stdout:
                said.append(line)
                if text in line:
                    return
        finally:
            silence.cancel()
        pytest.fail(f"ended without saying {text!r}:\n{''.join(said)}")


def test_a_gateway_set_up_as_its_page_says_serves_its_account_and_ends_well(tmp_path: Path) -> None:
    page = (source_root() / "docs/how-to/run-a-gateway.md").read_text()
    terminal = Terminal(tmp_path)
    port, metrics_port = str(free_port()), str(free_port())
    here = {
        "/etc/": "etc/",
        "/var/lib/holdfast/": "",
        "/opt/holdfast/bin/": "./",
        "sudo -u holdfast ": "",
        "sudo ": "",
        "./holdfast gateway passwd": "echo secret | ./holdfast gateway passwd",
        "chown root:holdfast": "ls",
        "check-config": "check-config etc/holdfast/gateway.toml",
        "repair": "repair etc/holdfast/gateway.toml",
        "gateway run": "gateway run --config etc/holdfast/gateway.toml",
        "1883": port,
        "[metrics]": f"[metrics]\nport = {metrics_port}",
        "9883": metrics_port,
    }

    def moved(block: str) -> str:
        for there, instead in here.items():
            block = block.replace(there, instead)
        return block

    folder = tmp_path / "etc/holdfast"
    folder.mkdir(parents=True)
    (folder / "gateway.toml").write_text(moved(fenced(page, "toml")))
    _, accounts, _, repair = (moved(block) for block in SHELL_BLOCK.findall(page))
    assert terminal.type(accounts).endswith("gateway.toml: ok\n")
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(fenced(page, "ini"))
    with terminal.background(moved(unit["Service"]["ExecStart"]) + " &") as gateway:
        gateway.says("ready")
        login = f"-p {port} -u alice -P secret -q 1 -t a"
        terminal.type(f"mosquitto_pub {login} -r -m kept; test $(mosquitto_sub {login} -C 1) = kept")
        with pytest.raises(AssertionError, match="not authorised"):
            terminal.type(f"mosquitto_pub -p {port} -t a -m x")
        assert terminal.type(moved("curl -sf http://127.0.0.1:9883/healthz")) == "ok\n"
        assert gateway.end() == 0
    repair = "\n".join(line for line in repair.splitlines() if "systemctl" not in line)
    assert "nothing to repair" in terminal.type(repair)


def fenced(page: str, language: str) -> str:
    """The first block of a language on a page."""
    return page.split(f"```{language}\n", 1)[1].split("```", 1)[0]


@pytest.mark.timeout(400)
def test_the_first_tutorial_ends_with_tables_without_a_gap(tmp_path: Path) -> None:
    demo, tables, metrics, ledger, gaps, batches, files = shell_blocks("tutorial/first-reading.md")
    terminal = Terminal(tmp_path)
    verdict = terminal.type(demo)
    assert "HOLDS: nothing is missing, nothing is there twice." in verdict
    assert "3 faults survived" in verdict and "MicroPython 1." in verdict
    listed = terminal.type(tables)
    assert "readings" in listed and "garage" in listed and "greenhouse" in listed
    assert "load" in terminal.type(metrics)
    assert "greenhouse" in terminal.type(ledger)
    assert terminal.type(gaps).endswith("\n0 rows\n")
    terminal.type(batches)
    assert {"garage.flash", "greenhouse.flash", "landing", "chart.png", "gateway.log"} <= set(
        terminal.type(files).split()
    )


def test_a_reading_sent_by_hand_with_a_stock_client_ends_in_the_table(tmp_path: Path) -> None:
    port = str(free_port())
    blocks = [block.replace("18830", port) for block in shell_blocks("how-to/run-by-hand.md")]
    config, gateway, lander, publish, tables = blocks
    terminal = Terminal(tmp_path)
    terminal.type(config)
    with terminal.background(gateway) as gateway_process:
        gateway_process.says("ready")
        with terminal.background(lander) as lander_process:
            lander_process.says("subscribed")
            terminal.type(publish)
            lander_process.says("landed")
    rows = terminal.type(tables)
    assert re.search(r"gateway-1\W+1\W+kitchen\W+temperature\W+21\.5\W+Cel", rows)
