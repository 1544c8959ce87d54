"""An AMQP broker that refuses the login: a server that speaks SASL alone, as bytes of the standard."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.uplink.support import opened, raw_broker, serving, until
from uplink.foreign.config import AmqpConfig
from uplink.foreign.route import ForeignRoute

pytest.importorskip("proton", reason="python-qpid-proton is not installed")

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
MECHANISMS = bytes.fromhex("005340c00801a305504c41494e")  # sasl-mechanisms with PLAIN alone
REFUSED = bytes.fromhex("005344c003015001")  # sasl-outcome with the code auth [part 5, 5.3.3.6]


def frame(body: bytes) -> bytes:
    """A frame of SASL [part 2, 2.3]."""
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    assert await reader.readexactly(8) == SASL_HEADER
    writer.write(SASL_HEADER + frame(MECHANISMS))
    size = int.from_bytes(await reader.readexactly(4), "big")
    await reader.readexactly(size - 4)
    writer.write(frame(REFUSED))
    await writer.drain()
    writer.close()


async def test_a_login_that_an_amqp_broker_refuses_is_told_as_one(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("wrong\n")
    password.chmod(0o600)
    async with raw_broker(refuse) as port, opened(tmp_path) as log:
        table: dict[str, object] = {
            "kind": "amqp",
            "name": "amqp",
            "servers": [f"amqp://127.0.0.1:{port}"],
            "address": "/queue/a",
        }
        table |= {"user": "guest", "password_file": str(password), "backoff_shortest_ms": 10, "backoff_longest_ms": 100}
        route = ForeignRoute(msgspec.convert(table, AmqpConfig), "gateway-1", log)
        async with serving(route):
            await until(lambda: bool(route.queue.state.login_refused))
            assert "Authentication failed" in route.queue.state.login_refused


async def test_an_amqp_broker_that_cannot_be_reached_refuses_no_login(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        table = {"kind": "amqp", "name": "amqp", "servers": ["amqp://127.0.0.1:1"], "address": "/queue/a"}
        route = ForeignRoute(msgspec.convert(table, AmqpConfig), "gateway-1", log)
        async with serving(route):
            await until(lambda: "127.0.0.1:1" in route.problem)
            assert route.queue.state.login_refused == ""
