"""What a site gives opens the doors of a real gateway, and what it revokes closes them: mosquitto's client, paho and
the firmware on MicroPython.
"""

import re
import shutil
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.device.firmware import ORIGIN, Firmware, eventually
from tests.tools.cli.gateway.running import HOLDFAST, LONG_S
from tests.tools.cli.site.at_gateway import SiteGateway, publish_as
from tools.cli.site.giving import Wish
from tools.cli.site.ledger import PASSWORD
from tools.cli.site.rules import Rights
from tools.lab.micropython import MicroPython
from wire.reasons import ADMINISTRATIVE_ACTION


@pytest.mark.parametrize("kind", ["certificate", "password"])
def test_a_device_gets_in_with_what_it_was_given_until_that_is_revoked(tmp_path: Path, kind: str) -> None:
    gateway = SiteGateway(tmp_path)
    attic, cellar = gateway.site.give_all([Wish(name, kind) for name in ("attic", "cellar")])  # type: ignore[arg-type]
    with gateway.serving():
        assert [publish_as(one, gateway) for one in (attic, cellar)] == ["", ""]
        assert "Not authorized" in publish_as(attic, gateway, topic="telemetry/cellar/a")
        assert "Client Identifier not valid" in publish_as(attic, gateway, client_id="cellar")
        (tmp_path / "kept").mkdir()
        for file in attic.folder.iterdir():  # what is on the board that was stolen
            (tmp_path / "kept" / file.name).write_bytes(file.read_bytes())
        gateway.site.revoke(["attic"])
        assert not attic.folder.exists()
        attic = type(attic)(attic.name, attic.line, tmp_path / "kept", attic.authority)
        gateway.read_again()
        assert publish_as(attic, gateway)
        assert publish_as(cellar, gateway) == ""
        again = gateway.site.give("attic", attic.line.kind)
        gateway.read_again()
        assert publish_as(again, gateway) == ""
        assert publish_as(attic, gateway)
        assert gateway.get("/healthz") == (200, "ok\n")


def test_an_open_connection_ends_when_its_certificate_is_revoked(tmp_path: Path) -> None:
    gateway = SiteGateway(tmp_path)
    given = gateway.site.give("attic")
    with gateway.serving():
        client = Client(CallbackAPIVersion.VERSION2, "attic", protocol=MQTTProtocolVersion.MQTTv5)
        context = ssl.create_default_context(cafile=str(given.authority))
        context.load_cert_chain(given.certificate, given.key)
        client.tls_set_context(context)
        gone: list[object] = []
        client.on_disconnect = lambda client, _, flags, reason, properties: gone.append(reason.value)
        client.connect("localhost", gateway.port)
        while not client.is_connected():
            client.loop(0.1)
        gateway.site.revoke(["attic"])
        gateway.read_again()
        while not gone:
            client.loop(0.1)
        assert gone == [ADMINISTRATIVE_ACTION]


@pytest.mark.parametrize("revoked_then", [[], ["cellar"]])
def test_a_site_from_an_old_backup_lets_in_no_client_that_was_revoked(tmp_path: Path, revoked_then: list[str]) -> None:
    gateway = SiteGateway(tmp_path)
    attic, _, barn = gateway.site.give_all([Wish(name) for name in ("attic", "cellar", "barn")])
    backup = tmp_path / "backup"
    shutil.copytree(gateway.site.places.folder, backup)
    with gateway.serving():
        gateway.site.revoke(["attic"])
        gateway.read_again()
        shutil.rmtree(gateway.site.places.folder)
        shutil.copytree(backup, gateway.site.places.folder)
        if revoked_then:
            gateway.site.revoke(revoked_then)
        gateway.read_again()
        assert publish_as(attic, gateway)
        assert publish_as(barn, gateway) == ""
        status, text = gateway.get("/healthz")
        assert status == 503 and "on that one alone: 1. Are the authority's files from an old backup?" in text
        gateway.site.revoke(["attic"])
        if not revoked_then:
            gateway.site.revoke(["cellar"])
        gateway.read_again()
        assert publish_as(attic, gateway)
        assert publish_as(barn, gateway) == ""
        assert gateway.get("/healthz") == (200, "ok\n")


def test_a_gateway_takes_both_certificates_of_a_renewal_and_at_its_next_start_no_older_list(tmp_path: Path) -> None:
    gateway = SiteGateway(tmp_path)
    first = gateway.site.give("attic")
    kept = tmp_path / "kept"
    shutil.copytree(first.folder, kept)
    (second,) = gateway.site.renew(["attic"])
    former = replace(first, folder=kept)
    old = gateway.site.places.revoked.read_bytes()
    with gateway.serving():
        assert (publish_as(former, gateway), publish_as(second, gateway)) == ("", "")
        gateway.site.revoke_former(["attic"])
        gateway.read_again()
        assert publish_as(former, gateway) and publish_as(second, gateway) == ""
    gateway.site.places.revoked.write_bytes(old)
    argv = [*HOLDFAST, "gateway", "run", str(gateway.path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LONG_S, check=False)
    assert done.returncode == 2 and "an older list would let in clients" in done.stderr + done.stdout


def test_a_certificate_of_a_device_is_no_gateways_and_a_gateways_no_devices(tmp_path: Path) -> None:
    gateway = SiteGateway(tmp_path)
    given = gateway.site.give("attic")
    server = gateway.site.find("gw")
    assert server is not None
    with gateway.serving():
        assert publish_as(type(given)("attic", given.line, server.folder, given.authority), gateway)
    configured = gateway.path.read_text().replace("gateways/gw", "devices/attic")
    gateway.path.write_text(configured)
    with gateway.serving():
        assert publish_as(given, gateway)


@pytest.mark.parametrize("kind", ["certificate", "password"])
async def test_the_firmware_connects_with_the_files_and_keys_that_it_is_given(
    micropython: MicroPython, tmp_path: Path, kind: str
) -> None:
    """The board has the files in DER; its gateway is known by the site's authority."""
    gateway = SiteGateway(tmp_path)
    rights = Rights.of_device("telemetry/garage", "status/garage")
    given = gateway.site.give(ORIGIN, kind, rights=rights)  # type: ignore[arg-type]
    board = tmp_path / "board"
    board.mkdir()
    for name, content in given.board_files().items():
        (board / name).write_bytes(content)
    number = gateway.password_port if kind == PASSWORD else gateway.port
    port = {"host": "127.0.0.1", "port": number, "server_name": "localhost", **given.port(str(board))}
    with gateway.serving():
        device = Firmware(micropython, board, port, status="status/garage", readings_limit=20, interval_ms=100)
        await device.start()
        await device.says("all 20 readings")
        await eventually(
            lambda: re.search(r'^holdfast_messages_received_total{qos="1"} [1-9]', gateway.get("/metrics")[1], re.M)
        )
        await device.end()
        assert publish_as(given, gateway, topic="telemetry/garage") == ""
        gateway.site.revoke([ORIGIN])
        gateway.read_again()
        await device.start()
        await device.says("no broker at 127.0.0.1")
        await device.end()
        if kind == "certificate":
            assert "CERTIFICATE_VERIFY_FAILED" in gateway.wait_for_event("connection failed")["reason"]
