"""A user follows a page: the tests run the commands of each page as the page has them."""

import configparser
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tools.cli.main import make_app
from tools.cli.paths import source_root
from tools.lab.testing.ports import free_port

DEADLINE_S = 170
SHELL_BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def shell_blocks(page: str) -> list[str]:
    return list(map(textwrap.dedent, SHELL_BLOCK.findall((source_root() / "docs" / page).read_text())))


class Terminal:
    """A folder with the command in it, as in a clone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = folder / "holdfast"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tools.cli.main "$@"\n')
        command.chmod(0o755)
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(source_root()),
            "PYTHONUNBUFFERED": "1",
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def type(self, block: str) -> str:
        """Runs the commands and returns their output; fails if one of them fails."""
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

    def ask(self, block: str) -> str:
        """Runs a `holdfast` command in this process, whose Java is already warm; returns its output."""
        with pytest.MonkeyPatch.context() as here:
            here.chdir(self.folder)
            done = CliRunner().invoke(make_app(), shlex.split(block.replace("\\\n", " "))[1:])
        assert done.exit_code == 0, done.output
        return done.stdout

    @contextmanager
    def background(self, block: str) -> Iterator["Background"]:
        """Runs a command in the background, and ends it when the block ends."""
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
    """The output of a background process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def end(self) -> int:
        """Tells it to end; returns its exit code."""
        self._process.terminate()
        return self._process.wait(DEADLINE_S)

    def says(self, text: str) -> None:
        """Reads up to a line that contains ``text``; fails if the process ends, or at the deadline."""
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


class Service:
    """The gateway that docs/how-to/run-a-gateway.md installs, with its folders below a test's own and no root."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.port, metrics_port = str(free_port()), str(free_port())
        self._here = {
            "/etc/": "etc/",
            "/var/lib/holdfast/": f"{terminal.folder}/var/",
            "sudo -u holdfast ": "",
            "sudo ": "",
            "holdfast gateway passwd": "holdfast gateway passwd 2>&1 < password",
            "chgrp holdfast": "ls",
            "-m 640 -g holdfast": "-m 640",
            "the password": "secret",
            "read -rs password": "password=secret",
            "mosquitto_pub ": f"mosquitto_pub -p {self.port} ",
            "mosquitto_sub ": f"mosquitto_sub -p {self.port} ",
            "check-config": "check-config etc/holdfast/gateway.toml",
            "repair": "repair etc/holdfast/gateway.toml",
            "gateway run": "gateway run --config etc/holdfast/gateway.toml",
            "gateway backup": "gateway backup --config etc/holdfast/gateway.toml",
            "[store]": "[store]\nvolatile = true",
            "1883": self.port,
            "[metrics]": f"[metrics]\nport = {metrics_port}",
            "9883": metrics_port,
            "/opt/": f"{terminal.folder}/opt/",
        }
        (terminal.folder / "password").write_text("secret\n")
        (terminal.folder / "etc/holdfast").mkdir(parents=True)
        (terminal.folder / "var").mkdir()
        self.install("old")
        (terminal.folder / "opt/holdfast").symlink_to(terminal.folder / "opt/holdfast-old")
        page = (source_root() / "docs/how-to/run-a-gateway.md").read_text()
        (terminal.folder / "etc/holdfast/gateway.toml").write_text(self.moved(fenced(page, "toml")))
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(fenced(page, "ini"))
        self._command = self.moved(unit["Service"]["ExecStart"].replace("/usr/bin/", "/opt/holdfast/bin/"))

    def install(self, version: str) -> None:
        """Makes a folder as pip makes it, whose command is this checkout's."""
        folder = self.terminal.folder / f"opt/holdfast-{version}/bin"
        folder.mkdir(parents=True)
        (folder / "holdfast").symlink_to(self.terminal.folder / "holdfast")

    def moved(self, block: str) -> str:
        """The block with this test's folders, without what needs root or systemd."""
        for there, instead in self._here.items():
            block = block.replace(there, instead)
        return "".join(line for line in block.splitlines(keepends=True) if "systemctl" not in line)

    def type(self, block: str) -> str:
        return self.terminal.type(self.moved(block))

    def running(self) -> AbstractContextManager["Background"]:
        return self.terminal.background(self._command + " &")


def test_a_gateway_set_up_as_its_page_says_serves_its_account_and_ends_well(tmp_path: Path) -> None:
    service = Service(Terminal(tmp_path))
    _, _, accounts, _, _, check, password, *_, repair = shell_blocks("how-to/run-a-gateway.md")
    assert service.type(accounts).endswith("gateway.toml: ok\n")
    service.type(password)
    assert (tmp_path / "etc/holdfast/central.password").read_text() == "secret\n"
    with service.running() as gateway:
        gateway.says("ready")
        assert service.type(check) == "works\n"
        with pytest.raises(AssertionError, match="not authorised"):
            service.type("mosquitto_pub -t a -m x")
        assert service.type("curl -sf http://127.0.0.1:9883/healthz") == "ok\n"
        assert gateway.end() == 0
    assert "nothing to repair" in service.type(repair)


def test_a_gateway_is_upgraded_and_taken_back_as_its_page_says(tmp_path: Path) -> None:
    service = Service(Terminal(tmp_path))
    _, _, accounts, _, _, check, *_ = shell_blocks("how-to/run-a-gateway.md")
    back_up, _, check_first, change, backlog, move, back, *_ = shell_blocks("how-to/upgrade.md")
    service.type(accounts)
    link = tmp_path / "opt/holdfast"
    with service.running() as gateway:
        gateway.says("ready")
        service.type(check)
        assert service.type(back_up).endswith("opt/holdfast-old\n")
        service.install("new")
        assert service.type("version=new\n" + check_first).endswith("gateway.toml: ok\n")
        assert gateway.end() == 0
    assert service.type("version=new\n" + change).endswith("gateway.toml: ok\n")
    assert link.readlink().name == "holdfast-new"
    read_again = check.splitlines()[-1]
    with service.running() as gateway:
        gateway.says("ready")
        assert service.type(read_again) == "works\n"
        assert "holdfast_route_backlog_messages" in service.type(backlog)
        assert gateway.end() == 0
    service.type(back.replace("holdfast-0.1.0", "holdfast-old"))
    assert link.readlink().name == "holdfast-old"
    with closing(sqlite3.connect(tmp_path / "var/store/messages.sqlite", isolation_level=None)) as store:
        store.execute("PRAGMA user_version = 10")
    text = re.search(r"message store .*: (of version 10, .*)", (source_root() / "docs/how-to/upgrade.md").read_text())
    assert text is not None
    with pytest.raises(AssertionError, match=re.escape(f"{tmp_path}/var/store/messages.sqlite: {text[1]}")):
        service.type(check_first.replace("$version", "new"))
    service.type(move)
    assert service.type("version=new\n" + check_first).endswith("gateway.toml: ok\n")


def fenced(page: str, language: str) -> str:
    """The first block of a language on a page."""
    return page.split(f"```{language}\n", 1)[1].split("```", 1)[0]


@pytest.fixture(scope="module")
def first_reading(tmp_path_factory: pytest.TempPathFactory) -> tuple[Terminal, str]:
    """The folder of the first tutorial after its demo, which made fewer readings, and the demo's output."""
    terminal = Terminal(tmp_path_factory.mktemp("tutorial"))
    demo, *_ = shell_blocks("tutorial/first-reading.md")
    return terminal, terminal.type(f"{demo.rstrip()} --quick")


def test_the_demo_of_the_first_tutorial_survives_its_faults_and_leaves_its_files(
    first_reading: tuple[Terminal, str],
) -> None:
    terminal, verdict = first_reading
    assert "HOLDS: nothing is missing, nothing is there twice." in verdict
    assert "4 faults survived" in verdict and "MicroPython 1." in verdict
    *_, files = shell_blocks("tutorial/first-reading.md")
    assert {"garage.flash", "greenhouse.flash", "landing", "chart.png", "gateway.log"} <= set(
        terminal.type(files).split()
    )


def test_the_first_tutorial_ends_with_tables_without_a_gap(
    first_reading: tuple[Terminal, str], spark: SparkSession
) -> None:
    terminal, _ = first_reading
    _, tables, metrics, ledger, gaps, batches, _ = shell_blocks("tutorial/first-reading.md")
    listed = terminal.ask(tables)
    assert "readings" in listed and "garage" in listed and "greenhouse" in listed
    assert "load" in terminal.ask(metrics)
    assert "greenhouse" in terminal.ask(ledger)
    assert terminal.ask(gaps).endswith("\n0 rows\n")
    terminal.ask(batches)


def test_a_reading_sent_by_hand_with_a_stock_client_ends_in_the_table(tmp_path: Path, spark: SparkSession) -> None:
    port = str(free_port())
    blocks = [block.replace("18830", port) for block in shell_blocks("how-to/run-by-hand.md")]
    config, gateway, lander, publish, tables = blocks
    terminal = Terminal(tmp_path)
    terminal.type(config.replace("[store]", "[store]\nvolatile = true"))
    with terminal.background(gateway) as gateway_process:
        gateway_process.says("ready")
        with terminal.background(lander) as lander_process:
            lander_process.says("subscribed")
            terminal.type(publish)
            lander_process.says("landed")
    ingest, select = tables.splitlines()
    terminal.ask(ingest)
    rows = terminal.ask(select)
    assert re.search(r"gateway-1\W+1\W+kitchen\W+temperature\W+21\.5\W+Cel", rows)
