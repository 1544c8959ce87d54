"""The firmware's TLS with a real mosquitto: which server it trusts, and what it says of others."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.device.firmware import Firmware, eventually
from tests.support.subscriber import subscriber
from tools.lab.micropython import MicroPython
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.ports import free_port

CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


@dataclass(frozen=True)
class Site:
    """A broker with a listener each for one kind of client, and the files of certificates."""

    folder: Path
    plain: int
    tls: int
    with_expired: int
    for_known: int

    def port(self, number: int, **change: Any) -> dict[str, Any]:
        ca = {"ca": str(self.folder / "ca.pem")}
        return {"kind": "tls", "host": "127.0.0.1", "port": number, "server_name": "localhost", **ca, **change}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    for name in ("ca", "stranger"):
        openssl(folder, "req", "-x509", *CURVE, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
    for name, days in (("server", 30), ("expired", 0), ("client", 30)):
        make_certificate(folder, name, days)
    ports = [free_port() for _ in range(3)]
    lines = ""
    for port, server in zip(ports, ("server", "expired", "server"), strict=True):
        lines += f"listener {port} 127.0.0.1\ncafile {folder}/ca.pem\ncertfile {folder}/{server}.pem\n"
        lines += f"keyfile {folder}/{server}.key\n"
    broker = Mosquitto(folder, f"{lines}require_certificate true")
    broker.start()
    yield Site(folder, broker.port, *ports)
    broker.stop()


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_certificate(folder: Path, name: str, days: int) -> None:
    """One of the CA, for localhost, in both encodings."""
    openssl(folder, "req", *CURVE, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", "/CN=localhost")
    ca = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", str(days)]
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", *ca, "-out", f"{name}.pem")
    openssl(folder, "x509", "-in", f"{name}.pem", "-outform", "DER", "-out", f"{name}.der")
    openssl(folder, "pkey", "-in", f"{name}.key", "-outform", "DER", "-out", f"{name}.key.der")


async def test_readings_arrive_from_a_device_that_trusts_the_server(
    site: Site, micropython: MicroPython, tmp_path: Path
) -> None:
    with subscriber(site.plain, "telemetry/#") as received:
        device = Firmware(micropython, tmp_path, site.port(site.tls))
        await device.start()
        await eventually(lambda: received.qsize() >= 20)
        await device.end()


@pytest.mark.parametrize("ending", ["", ".der"])
async def test_client_certificate_opens_a_listener_that_wants_one(
    ending: str, site: Site, micropython: MicroPython, tmp_path: Path
) -> None:
    certificate = site.folder / ("client.der" if ending else "client.pem")
    files = {"certificate": str(certificate), "key": str(site.folder / f"client.key{ending}")}
    with subscriber(site.plain, "telemetry/#") as received:
        device = Firmware(micropython, tmp_path, site.port(site.for_known, **files))
        await device.start()
        await eventually(lambda: received.qsize() >= 5)
        await device.end()


@pytest.mark.parametrize(
    ("listener", "change", "reason"),
    [
        ("tls", {"ca": "stranger.pem"}, "TLS: The certificate is not correctly signed by the trusted CA"),
        ("tls", {"server_name": "elsewhere"}, "TLS: The certificate Common Name (CN) does not match"),
        ("with_expired", {}, "TLS: The certificate validity has expired"),
        ("for_known", {}, "TLS: the server refuses the handshake; does it want another client certificate?"),
        ("plain", {}, "TLS: "),
    ],
)
async def test_server_that_cannot_be_trusted_gets_nothing_and_the_reason_is_said(
    listener: str, change: dict[str, Any], reason: str, site: Site, micropython: MicroPython, tmp_path: Path
) -> None:
    if "ca" in change:
        change = {"ca": str(site.folder / change["ca"])}
    device = Firmware(micropython, tmp_path, site.port(getattr(site, listener), **change))
    with subscriber(site.plain, "telemetry/#") as received:
        await device.start()
        said = await device.says("no broker at 127.0.0.1")
        assert reason in said and "\n" not in said
        assert received.empty()
        await device.end()


@pytest.mark.parametrize("key", ["ca", "certificate", "key"])
async def test_file_that_is_no_certificate_is_named(
    key: str, site: Site, micropython: MicroPython, tmp_path: Path
) -> None:
    files = {"certificate": str(site.folder / "client.pem"), "key": str(site.folder / "client.key")}
    files[key] = str(tmp_path / "device.json")
    device = Firmware(micropython, tmp_path, site.port(site.tls, **files))
    await device.start()
    said = await device.says("expected files of certificates and a key, DER or PEM")
    assert f"{key} {files[key]}" in said
