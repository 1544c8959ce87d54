"""Common clients lose nothing over a gateway that is killed, and none of their messages counts twice."""

import json

import typer
from typer.testing import CliRunner

from tools.lab.torture.clients.command import clients

app = typer.Typer()
app.command()(clients)


def test_common_clients_show_each_message_once(seed: int) -> None:
    result = CliRunner().invoke(app, ["--quick", "--seed", str(seed), "--json"])
    report = json.loads(result.stdout)
    assert (result.exit_code, report["violations"]) == (0, [])
    assert (report["messages"], report["lost"], report["twice"]) == (200, 0, 0)
    assert {"mosquitto_sub-2", "paho-2"} <= report["shown"].keys()
