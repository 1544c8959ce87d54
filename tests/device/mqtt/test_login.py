"""The firmware on a real MicroPython logs in: at a mosquitto with passwords, and at a gateway with accounts."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.accounts import make_account, save_account
from tests.device.firmware import Firmware, eventually, tcp
from tools.lab.micropython import MicroPython
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process

USER, PASSWORD = "shed", "under the roof"
LOGIN = {"user": USER, "password": PASSWORD}
SCRAM = {**LOGIN, "authentication": "scram-sha-256"}


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[int]:
    """One that lets in only that account; yields its port."""
    save_account(folder / "accounts", make_account(USER, PASSWORD.encode(), with_scram=True, iterations=4096))
    port = free_port()
    (folder / "gateway.toml").write_text(
        f'name = "attic"\naccounts = "{folder}/accounts"\n[store]\npath = "{folder}/store"\nvolatile = true\n'
        f'[[listener]]\nkind = "tcp"\nhost = "127.0.0.1"\nport = {port}\nallow_anonymous = false\n'
    )
    argv = [sys.executable, "-m", "tools.cli.main", "gateway", "run", "--config", str(folder / "gateway.toml")]
    process = Process("gateway", argv, folder / "gateway.log")
    process.start()
    try:
        process.says("ready")
        yield port
    finally:
        process.kill()


@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_device_logs_in_at_a_mosquitto_with_passwords(
    version: str, micropython: MicroPython, tmp_path: Path
) -> None:
    passwords = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(passwords), USER, PASSWORD], check=True, timeout=20)
    broker = Mosquitto(tmp_path, f"password_file {passwords}")
    conf = tmp_path / "mosquitto.conf"
    conf.write_text(conf.read_text().replace("allow_anonymous true", "allow_anonymous false"))
    broker.start()
    try:
        change: dict[str, Any] = {"mqtt_version": version}
        device = Firmware(micropython, tmp_path, {**tcp(broker.port), **LOGIN, "password": "guess"}, **change)
        await device.start()
        await device.says("no broker at")
        await device.end()
        device = Firmware(micropython, tmp_path, {**tcp(broker.port), **LOGIN}, **change)
        await device.start()
        await device.says("connected to")
        await device.end()
    finally:
        broker.stop()


@pytest.mark.parametrize("login", [LOGIN, SCRAM], ids=["password", "scram"])
async def test_device_logs_in_at_a_gateway_with_accounts(
    login: dict[str, str], micropython: MicroPython, tmp_path: Path
) -> None:
    async with gateway(tmp_path) as port:
        device = Firmware(micropython, tmp_path, {**tcp(port), **login}, readings_limit=60)
        await device.start()
        await device.says("connected to")
        await device.says("all 60 readings made")
        lines = await device.end()
        assert any("hashes make the keys" in line for line in lines) == (login is SCRAM)
        if login is SCRAM:
            await device.start()
            await device.says("connected to")
            lines = await device.end()
            assert not any("hashes make the keys" in line for line in lines[lines.index(lines[-1]) :])


@pytest.mark.parametrize("login", [LOGIN, SCRAM], ids=["password", "scram"])
async def test_wrong_password_is_said_and_nothing_is_sent(
    login: dict[str, str], micropython: MicroPython, tmp_path: Path
) -> None:
    async with gateway(tmp_path) as port:
        device = Firmware(micropython, tmp_path, {**tcp(port), **login, "password": "guess"})
        await device.start()
        await device.says("bad user name or password" if login is LOGIN else "hashes make the keys")
        if login is SCRAM:
            await device.says("the server says: not authorized")
        await device.end()


async def test_broker_that_proves_nothing_gets_no_reading(micropython: MicroPython, tmp_path: Path) -> None:
    """It accepts whatever comes, as one that wants the readings would."""

    heard = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(4096))
        properties = b"\x15\x00\x0dSCRAM-SHA-256"
        writer.write(b"\x20\x13\x00\x00\x10" + properties)  # CONNACK, success
        heard[-1] += await reader.read()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    device = Firmware(micropython, tmp_path, {**tcp(server.sockets[0].getsockname()[1]), **SCRAM})
    await device.start()
    await device.says("the broker does not prove that it knows the password")
    await eventually(lambda: len(heard) >= 3)
    await device.end()
    server.close()
    assert not any(b"telemetry" in one or PASSWORD.encode() in one for one in heard)
