"""A route with several servers: failover, return, and servers that refer to others."""

import asyncio
import logging
from pathlib import Path

import pytest

from gateway.log_fields import KeyValueFormatter
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tests.uplink.support import append, opened, raw_broker, route_config, running, serving, until
from tools.lab.testing.ports import free_port
from uplink.config.route import RouteConfig
from uplink.connect import connector
from uplink.connect.notes import FILE
from uplink.route import Route
from wire.codec.packets import Connack, Disconnect
from wire.properties import SERVER_REFERENCE
from wire.reasons import SERVER_BUSY, SERVER_MOVED, USE_ANOTHER_SERVER

BUSY = Connack(False, SERVER_BUSY).encode()
ENDS_A_SESSION = [False, True, False]
"""The Clean Start flags with which a route begins a session at a server that has an earlier one."""


def to(*ports: int, **keys: object) -> RouteConfig:
    first, *others = (f"mqtt://127.0.0.1:{port}" for port in ports)
    return route_config(0, broker=first, fallbacks=tuple(others), **keys)


def payloads(broker: ScriptedBroker) -> list[bytes]:
    return [bytes(publish.payload) for publishes in broker.publishes for publish in publishes]


async def has_come(broker: ScriptedBroker, number: int) -> None:
    await until(lambda: payloads(broker)[-1:] == [b"%d" % number])


def refer_to(port: int) -> bytes:
    return Connack(False, USE_ANOTHER_SERVER, {SERVER_REFERENCE: f"127.0.0.1:{port}"}).encode()


async def test_a_route_whose_server_is_away_sends_to_the_next_one_that_accepts_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    away = free_port()
    async with (
        scripted_broker(mqtt_5_refusal=BUSY) as busy,
        scripted_broker() as there,
        opened(tmp_path) as log,
        running(log, to(away, busy.port, there.port)),
    ):
        await append(log, range(1, 4))
        await until(lambda: payloads(there) == [b"1", b"2", b"3"])
    told = "\n".join(map(KeyValueFormatter().format, caplog.records))
    assert f"connected to mqtt://127.0.0.1:{there.port} instead of mqtt://127.0.0.1:{away}" in told
    assert f"route central to mqtt://127.0.0.1:{there.port}: connected" in told


async def test_the_status_of_a_route_has_the_server_to_which_it_is_connected(tmp_path: Path) -> None:
    away = free_port()
    async with scripted_broker() as there, opened(tmp_path) as log:
        route = Route(to(away, there.port), "gateway-1", log)
        async with serving(route):
            await until(lambda: route.queue.status().server == f"mqtt://127.0.0.1:{there.port}")
        status = route.queue.status()
        assert (status.broker, status.server) == (f"mqtt://127.0.0.1:{away}", "")


async def test_when_no_server_accepts_it_the_log_names_the_reason_of_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = free_port()
    async with (
        scripted_broker(mqtt_5_refusal=BUSY) as busy,
        opened(tmp_path) as log,
        running(log, to(away, busy.port)),
    ):
        await until(lambda: "storing meanwhile" in caplog.text)
    assert f"mqtt://127.0.0.1:{away}: cannot connect: " in caplog.text
    assert f"; mqtt://127.0.0.1:{busy.port}: the server says: server busy (0x89)" in caplog.text


async def test_a_route_returns_to_an_earlier_server_and_begins_a_session_there_that_holds_nothing_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "RETURN_S", 0.01)
    first, port = ScriptedBroker(session_present=True), free_port()
    async with scripted_broker(puback=lambda p: 0 if p.payload == b"1" else None) as second, opened(tmp_path) as log:
        async with running(log, to(port, second.port)):
            await append(log, range(1, 3))
            await until(lambda: payloads(second) == [b"1", b"2"])
            second.drop_clients()
            await until(lambda: len(second.connects) == 2)
            server = await asyncio.start_server(first.serve, "127.0.0.1", port)
            await until(lambda: payloads(first) == [b"2"])
        server.close()
        await first.all_closed()
    assert not second.connects[1].clean_start
    assert [connect.clean_start for connect in first.connects] == ENDS_A_SESSION


async def test_a_restarted_gateway_knows_which_server_it_used_last(tmp_path: Path) -> None:
    async with scripted_broker(session_present=True) as first, scripted_broker(session_present=True) as second:
        for number, broker in enumerate((first, first, second, second, first), 1):
            async with opened(tmp_path) as log, running(log, to(broker.port)):
                await append(log, range(number, number + 1))
                await has_come(broker, number)
    assert [connect.clean_start for connect in first.connects] == [*ENDS_A_SESSION, False, *ENDS_A_SESSION]
    assert [connect.clean_start for connect in second.connects] == [*ENDS_A_SESSION, False]


async def test_a_gateway_that_has_its_former_name_again_begins_its_session_clean(tmp_path: Path) -> None:
    """The broker may have kept packet identifiers of the session that the gateway had under that name."""
    async with scripted_broker(session_present=True) as broker:
        for number, name in enumerate(("a", "a", "b", "a"), 1):
            async with opened(tmp_path) as log, running(log, to(broker.port), gateway_name=name):
                await append(log, range(number, number + 1))
                await has_come(broker, number)
    connects = [(connect.client_id[0], connect.clean_start) for connect in broker.connects]
    begun = {name: [(name, is_clean) for is_clean in ENDS_A_SESSION] for name in "ab"}
    assert connects == [*begun["a"], ("a", False), *begun["b"], *begun["a"]]


async def test_a_damaged_file_of_notes_is_put_aside_and_the_route_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_broker() as broker:
        async with opened(tmp_path) as log, running(log, to(broker.port)):
            await append(log, range(1, 2))
            await until(lambda: payloads(broker) == [b"1"])
        (tmp_path / "store" / FILE).write_bytes(b"x" * 8192)
        async with opened(tmp_path) as log, running(log, to(broker.port)):
            await append(log, range(2, 3))
            await until(lambda: payloads(broker)[-1] == b"2")
    assert "notes of routes: they cannot be read and begin anew" in caplog.text


@pytest.mark.parametrize("content", [None, b""], ids=["removed", "empty"])
async def test_a_route_whose_note_is_lost_begins_its_session_clean(tmp_path: Path, content: bytes | None) -> None:
    """It may have used another server since: this one may hold packet identifiers that would swallow messages."""
    async with scripted_broker(session_present=True) as first, scripted_broker(session_present=True) as second:
        for number, broker in enumerate((first, second, first), 1):
            if number == 3:
                for file in (tmp_path / "store").glob(f"{FILE}*"):
                    file.unlink()
                if content is not None:
                    (tmp_path / "store" / FILE).write_bytes(content)
            async with opened(tmp_path) as log, running(log, to(broker.port)):
                await append(log, range(number, number + 1))
                await has_come(broker, number)
    assert [connect.clean_start for connect in first.connects] == 2 * ENDS_A_SESSION


async def test_a_server_that_refers_to_another_one_is_obeyed(tmp_path: Path) -> None:
    async with (
        scripted_broker() as last,
        scripted_broker(mqtt_5_refusal=refer_to(last.port)) as middle,
        scripted_broker(mqtt_5_refusal=refer_to(middle.port)) as first,
        opened(tmp_path) as log,
        running(log, to(first.port)),
    ):
        await append(log, range(1, 2))
        await until(lambda: payloads(last) == [b"1"])


async def test_servers_that_refer_to_each_other_are_not_followed_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_broker() as broker, scripted_broker() as last, opened(tmp_path) as log:
        broker.mqtt_5_refusal = refer_to(broker.port)
        async with running(log, to(broker.port, last.port)):
            await append(log, range(1, 2))
            await until(lambda: payloads(last) == [b"1"])
        assert broker.refused == connector.REFERENCES_MOST + 1


async def test_a_server_that_moves_while_a_route_is_connected_is_followed(tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        there = {SERVER_REFERENCE: f"no:such:name 127.0.0.1:{last.port}"}
        writer.write(Connack(False).encode() + Disconnect(SERVER_MOVED, there).encode())

    async with scripted_broker() as last, raw_broker(talk) as port, opened(tmp_path) as log, running(log, to(port)):
        await append(log, range(1, 2))
        await until(lambda: payloads(last) == [b"1"])
