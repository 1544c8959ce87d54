"""``holdfast gateway repair`` as an operator uses it: from the refusal of a damaged store to its messages."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import Result

from tests.support.command import holdfast
from tests.tools.cli.gateway.running import LONG_S, Gateway, check, publish

PAGE = 4096


def repair(gateway: Gateway, *options: str) -> Result:
    return holdfast("gateway", "repair", str(gateway.path), *options)


def subscribe(port: int, count: int) -> list[str]:
    """What a durable session gets, ``count`` messages of it; with none it is only made."""
    command = ["mosquitto_sub", "-p", str(port), "-i", "reader", "-c", "-q", "1", "-t", "a", "-W", str(int(LONG_S))]
    command += ["-C", str(count)] if count else ["-E"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="needs mosquitto-clients")
def test_a_store_that_no_gateway_starts_on_is_repaired_with_the_messages_in_it(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    with gateway.running() as process:
        subscribe(gateway.port, 0)
        for _ in range(3):
            assert publish(gateway.port) == 0
        in_use = repair(gateway)
        assert in_use.exit_code == 2 and "another process uses it" in in_use.stderr
        process.stop()
    file = tmp_path / "store/messages.sqlite"
    file.write_bytes(bytes(PAGE) + file.read_bytes()[PAGE:])
    refused = check("gateway", "run", "--config", str(gateway.path))
    assert refused.returncode == 2
    assert "messages.sqlite: file is not a database; `holdfast gateway repair` saves what can be read" in refused.stderr
    done = repair(gateway)
    assert done.exit_code == 0, done.stderr
    assert "messages.sqlite: its header is damaged" in done.stdout and "kept: 3 messages of the log" in done.stdout
    assert json.loads(repair(gateway, "--json").stdout)["damage"] == []
    with gateway.running():
        assert subscribe(gateway.port, 3) == ["hello"] * 3


@pytest.mark.parametrize(
    ("starts", "known"),
    [(1, "lost: how many messages, is not known"), (2, "lost: at least 1 messages, positions 1 to 1")],
)
def test_where_the_file_of_messages_is_missing_repair_says_that_all_in_it_is_lost(
    tmp_path: Path, starts: int, known: str
) -> None:
    gateway = Gateway(tmp_path)
    for _ in range(starts):
        with gateway.running():
            assert publish(gateway.port, "-r") == 0
    for file in (tmp_path / "store").glob("messages.sqlite*"):
        file.unlink()
    shutil.copytree(tmp_path / "store", tmp_path / "same", ignore=shutil.ignore_patterns("control"))
    done = repair(gateway)
    assert done.exit_code == 0, done.stderr
    assert "lost: all other messages, retained messages, sessions and wills that were in the file" in done.stdout
    assert known in done.stdout
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "same").rename(tmp_path / "store")
    found = json.loads(repair(gateway, "--json").stdout)
    assert found["file_lost"] and found["messages"] == 0
    whole = json.loads(repair(gateway, "--json").stdout)
    assert (whole["damage"], whole["file_lost"], whole["messages"]) == ([], False, None)
