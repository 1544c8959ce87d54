"""A user follows the how-tos about networks of gateways: the tests type all commands of each page."""

import asyncio
import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.device.firmware import Firmware
from tools.cli.main import make_app
from tools.cli.paths import source_root
from tools.lab.micropython import MicroPython
from tools.lab.testing.ports import free_port

DEADLINE_S = 280
FENCED = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PORT = re.compile(r"\b188[345]\d\b")
HOW_TO = source_root() / "docs/how-to"


def moved(page: str) -> str:
    """The page with ports that are free here, a mosquitto that may be root, and stores that may be in memory."""
    text = (HOW_TO / f"{page}.md").read_text().replace("allow_anonymous true", "allow_anonymous true\nuser root")
    text = text.replace("[store]\n", "[store]\nvolatile = true\n")
    ports = {port: str(free_port()) for port in PORT.findall(text)}
    return PORT.sub(lambda found: ports[found[0]], text)


def typed(page: str, folder: Path) -> str:
    """Types all commands of a page in one shell; returns their standard output. Fails if one of them fails."""
    command = folder / "holdfast"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tools.cli.main "$@"\n')
    command.chmod(0o755)
    commands = "".join(text for language, text in FENCED.findall(page) if language == "sh")
    with (folder / "log").open("w+") as log:
        done = subprocess.run(
            ["timeout", "--kill-after=5", str(DEADLINE_S), "bash", "-euo", "pipefail", "-m", "-c", commands],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(source_root()), "PATH": f"{os.environ['PATH']}:/usr/sbin"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        log.seek(0)
        assert done.returncode == 0, f"exit code {done.returncode}:\n{done.stdout}\n{log.read()[-20_000:]}"
    return done.stdout


def shown(page: str) -> list[str]:
    """What the page shows as output: the texts behind commands."""
    blocks = FENCED.findall(page)
    return [text for (before, _), (language, text) in pairwise(blocks) if (before, language) == ("sh", "text")]


@pytest.mark.parametrize(("name", "outputs"), [("network-chain", 4), ("network-star", 3), ("network-cities", 2)])
def test_the_commands_of_a_page_do_what_it_says(name: str, outputs: int, tmp_path: Path) -> None:
    page = moved(name)
    said, place = typed(page, tmp_path), 0
    assert len(shown(page)) == outputs
    for text in shown(page):
        place = said.find(text, place)
        assert place >= 0, f"{text}\nis not in its turn in\n{said}"
        place += len(text)


def test_a_second_way_between_the_cities_is_a_fault_and_both_ways_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (HOW_TO / "network-cities.md").read_text()
    for name, text in re.findall(r"^cat > (\S+) <<'END'\n(.*?)^END$", page, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    more = '\n[[route]]\nname = "to-munich"\nbroker = "mqtt://127.0.0.1:18854"\nuser = "hamburg"\n'
    zone = 'zone = "south"\nhops = "one"\n'
    with (tmp_path / "hamburg.toml").open("a") as file:
        file.write(f'{more}[route.neighbour]\nname = "munich"\n{zone}')
    with (tmp_path / "munich.toml").open("a") as file:
        file.write(f'\n[[neighbour]]\nname = "hamburg"\n{zone}')
    monkeypatch.chdir(tmp_path)
    cities = ("hamburg", "bremen", "berlin", "munich", "augsburg", "paris")
    done = CliRunner().invoke(make_app(), ["network", "check", *(f"{city}.toml" for city in cities)])
    assert done.exit_code == 1
    assert "let the zones share one gateway" in done.output and "hamburg-to-munich" in done.output


def test_a_command_from_the_central_broker_reaches_a_device_and_its_answer_comes_back(
    tmp_path: Path, micropython: MicroPython
) -> None:
    page = moved("command-a-device")
    (keys,) = (json.loads(text) for language, text in FENCED.findall(page) if language == "json")
    board = tmp_path / "board"
    board.mkdir()
    device = Firmware(micropython, board, **{"broker": keys.pop("port"), **keys})
    asyncio.run(device.start())
    answer = json.loads(typed(page, tmp_path).splitlines()[-1])
    (example,) = (json.loads(text) for text in shown(page))
    assert {**answer, "epoch": ""} == {**example, "epoch": ""}
