"""What a route exports to NATS, against a real server."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.message import Message
from gateway.store import MessageLog
from tests.gateway.support import running as running_broker
from tests.uplink.foreign.credentials import Account
from tests.uplink.foreign.support import (
    DEADLINE_S,
    FAST,
    connected,
    counted,
    drained,
    has_messages,
    nats_config,
    nats_server,
    routed,
    stored_in,
)
from tests.uplink.support import append, raw_broker, serving, until
from uplink.foreign.config import NatsConfig
from uplink.foreign.route import ForeignRoute
from uplink.routes import Routes
from wire import properties


async def put(log: MessageLog, topic: str, payload: bytes = b"x", seq: int = 1, **keys: object) -> None:
    await log.submit([Message(topic, payload, origin="a", epoch=7, seq=seq, **keys)])  # type: ignore[arg-type]


async def test_messages_go_to_jetstream_in_order_with_their_identity(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client, routed(tmp_path, nats_config(server)) as (broker, route):
            await client.jetstream().add_stream(name="S", subjects=["telemetry.>"])
            await append(broker.log, range(1, 301), "telemetry/a.b")
            await drained(route)
            found = await stored_in(client, "S")
        assert [one.data for one in found] == [b"%d" % number for number in range(1, 301)]
        assert found[4].subject == "telemetry.a/b"
        assert found[4].headers["Nats-Msg-Id"] == "00000007/5/a"


async def test_a_message_that_goes_again_is_stored_once(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client:
            await client.jetstream().add_stream(name="S", subjects=["telemetry.>"])
            for _ in range(2):
                async with routed(tmp_path / "gateway", nats_config(server, name="one")) as (broker, route):
                    await append(broker.log, range(1, 51))
                    await drained(route)
            assert await counted(client, "S") == 50


@pytest.mark.parametrize(
    ("answer", "stream", "fault"),
    [
        (b'{"status":"ok"}', None, "names no stream"),
        (b'{"status":"ok"}', "S", "names no stream"),
        (b"ok", None, "cannot be read"),
        (b'{"stream":"S"}', None, "has no sequence number"),
        (b'{"stream":"S","seq":0}', "S", "has no sequence number"),
        (b'{"stream":"other","seq":7}', "S", "names the stream 'other', expected 'S'"),
        (b'{"error":{"err_code":10054}}', None, "names no stream"),
    ],
)
async def test_an_answer_that_is_none_of_the_stream_acknowledges_nothing(
    tmp_path: Path, answer: bytes, stream: str | None, fault: str
) -> None:
    """Any service may subscribe to the subject and answer there."""
    with nats_server(tmp_path) as server:
        async with connected(server) as client:
            if stream is not None:
                await client.jetstream().add_stream(name="S", subjects=["other.>"])

            async def reply(came: Any) -> None:
                await came.respond(answer)

            service = await client.subscribe("telemetry.>", cb=reply)
            await client.flush()
            config = nats_config(server, stream=stream, retry_interval_s=1)
            async with routed(tmp_path, config) as (broker, route):
                await append(broker.log, range(1, 21))
                await until(lambda: fault in route.problem + route.queue.state.last_error)
                await route.queue.watch.count()
                assert route.queue.state.backlog_messages == 20
                await service.unsubscribe()
                if stream is None:
                    await client.jetstream().add_stream(name="S", subjects=["telemetry.>"])
                else:
                    await client.jetstream().update_stream(name="S", subjects=["telemetry.>"])
                await drained(route)
            assert [one.data for one in await stored_in(client, "S")] == [b"%d" % number for number in range(1, 21)]


async def test_a_reader_of_one_subject_acknowledges_no_message_of_another(tmp_path: Path) -> None:
    """A subscriber sees where an answer to its message is to go. That tells nothing of any other message."""
    with nats_server(tmp_path) as server:
        async with connected(server) as reader, connected(server) as silent:

            async def forge(came: Any) -> None:
                inbox = came.reply.rpartition(".")[0]
                for number in range(1, 20):
                    await reader.publish(f"{inbox}.{number}", b'{"stream":"S","seq":%d}' % (100 + number))
                await reader.flush()
                forged.set()

            forged = asyncio.Event()
            await silent.subscribe("telemetry.closed")
            await silent.flush()
            await reader.subscribe("telemetry.open", cb=forge)
            await reader.flush()
            async with routed(tmp_path, nats_config(server, retry_interval_s=1)) as (broker, route):
                await put(broker.log, "telemetry/closed")
                await put(broker.log, "telemetry/open", seq=2)
                await asyncio.wait_for(forged.wait(), 10)
                await silent.jetstream().add_stream(name="S", subjects=["telemetry.>"])
                await drained(route)
            assert "telemetry.closed" in [one.subject for one in await stored_in(silent, "S")]


async def test_a_route_with_an_inbox_of_its_own_is_answered_by_no_user_of_the_others(tmp_path: Path) -> None:
    users = """authorization { users = [
      { user: "gateway", password: "secret" }
      { user: "service", password: "secret", permissions: { subscribe: [">"], publish: ["_INBOX.>"] } }
    ] }"""
    password = tmp_path / "password"
    password.write_text("secret\n")
    password.chmod(0o600)
    keys = {"user": "gateway", "password_file": str(password), "retry_interval_s": 1, "inbox_prefix": "_INBOX_gateway"}
    refused: list[str] = []

    async def note(error: Exception) -> None:
        refused.append(str(error).lower())

    login = {"user": "service", "password": "secret", "error_cb": note}
    with nats_server(tmp_path, users) as server:
        async with (
            connected(server, user="gateway", password="secret") as client,
            connected(server, **login) as service,
        ):

            async def forge(came: Any) -> None:
                await came.respond(b'{"stream":"S","seq":7}')

            await service.subscribe("telemetry.>", cb=forge)
            await service.flush()
            async with routed(tmp_path, nats_config(server, **keys)) as (broker, route):
                await put(broker.log, "telemetry/a")
                await until(lambda: any('publish to "_inbox_gateway.' in one for one in refused))
                await client.jetstream().add_stream(name="S", subjects=["telemetry.>"])
                await drained(route)
            assert await counted(client, "S") == 1


async def test_a_service_that_answers_beside_the_stream_delays_nothing(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client:
            await client.jetstream().add_stream(name="S", subjects=["telemetry.>"])

            async def reply(came: Any) -> None:
                await came.respond(b'{"status":"ok"}')

            await client.subscribe("telemetry.>", cb=reply)
            await client.flush()
            async with routed(tmp_path, nats_config(server)) as (broker, route):
                await append(broker.log, range(1, 301))
                await drained(route)
            assert [one.data for one in await stored_in(client, "S")] == [b"%d" % number for number in range(1, 301)]


async def test_nothing_is_acknowledged_while_no_stream_takes_it_and_it_goes_when_one_does(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client, routed(tmp_path, nats_config(server)) as (broker, route):
            await append(broker.log, range(1, 11))
            await until(lambda: "no stream takes 'telemetry.a'" in route.queue.state.stands)
            assert route.queue.status().stands
            await client.jetstream().add_stream(name="S", subjects=["telemetry.>"])
            await has_messages(client, "S", 10)
            await drained(route)
            await until(lambda: not route.queue.state.stands)
            await client.jetstream().delete_stream("S")
            await append(broker.log, range(11, 13))
            await until(lambda: "no stream takes" in route.queue.state.stands)
            await client.jetstream().add_stream(name="S", subjects=["telemetry.>"])
            await drained(route)
            assert [one.data for one in await stored_in(client, "S")] == [b"11", b"12"]


async def test_a_stream_that_is_not_there_is_named(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client, routed(tmp_path, nats_config(server, stream="S")) as (broker, route):
            await append(broker.log, range(1, 3))
            await until(lambda: "there is no stream 'S'" in route.problem)
            await client.jetstream().add_stream(name="S", subjects=["telemetry.>"])
            await drained(route)
            assert await counted(client, "S") == 2


@pytest.mark.parametrize("mode", ["best_effort", "ordered"])
async def test_core_nats_gets_messages_in_order(tmp_path: Path, mode: str) -> None:
    with nats_server(tmp_path) as server:
        config = nats_config(server, delivery_mode=mode, project="site.one")
        async with connected(server) as client, routed(tmp_path, config) as (broker, route):
            subscription = await client.subscribe("site.one.>")
            await client.flush()
            await append(broker.log, range(1, 401))
            await drained(route)
            found = [await subscription.next_msg(20) for _ in range(400)]
        assert [one.data for one in found] == [b"%d" % number for number in range(1, 401)]
        assert found[0].subject == "site.one.telemetry.a"


async def test_what_has_no_name_or_is_too_large_is_set_aside_and_the_rest_goes_on(tmp_path: Path) -> None:
    with nats_server(tmp_path, "max_payload: 2000") as server:
        async with connected(server) as client, routed(tmp_path, nats_config(server)) as (broker, route):
            await client.jetstream().add_stream(name="S", subjects=["t.>"])
            topics = ["t/1", "t//2", "t/a b", "t/*", "t/>", "t/3"]
            for seq, topic in enumerate(topics, 1):
                await put(broker.log, topic, seq=seq)
            await put(broker.log, "t/large", bytes(1990), 7)
            await put(broker.log, "t/last", seq=8)
            await drained(route)
            refused = {one.topic: one.reason for one in await route.queue.refusals.messages()}
            assert [one.subject for one in await stored_in(client, "S")] == ["t.1", "t.3", "t.last"]
        assert list(refused) == ["t//2", "t/a b", "t/*", "t/>", "t/large"]
        assert "empty level" in refused["t//2"] and "2000 at most" in refused["t/large"]


@pytest.mark.parametrize(("keeps", "kept"), [("never", 0), ("receivers", 0), ("always", 1)])
async def test_what_is_not_to_be_preserved_is_dropped_with_a_range(tmp_path: Path, keeps: str, kept: int) -> None:
    with nats_server(tmp_path) as server:
        config = nats_config(server, preserve_undelivered=keeps)
        async with routed(tmp_path, config) as (broker, route):
            await put(broker.log, "t//1")
            await drained(route)
            assert len(await route.queue.refusals.messages()) == kept
            assert broker.counters.messages_dropped["rejected"] == 1 - kept


async def test_a_refused_message_goes_when_an_operator_sends_it_again(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client:
            await client.jetstream().add_stream(name="S", subjects=["t.>"], max_msg_size=300)
            async with routed(tmp_path, nats_config(server)) as (broker, route):
                await put(broker.log, "t/1", bytes(400))
                await drained(route)
                assert "JetStream refuses it" in (await route.queue.refusals.messages())[0].reason
                await client.jetstream().update_stream(name="S", subjects=["t.>"], max_msg_size=1000)
                route.queue.refusals.send_again()
                await has_messages(client, "S", 1)
                await until(lambda: not route.queue.state.refused_messages)


async def test_a_refused_message_that_is_on_its_way_again_is_not_sent_beside_itself(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client:
            await client.jetstream().add_stream(name="S", subjects=["t.>"], max_msg_size=300)
            async with routed(tmp_path, nats_config(server)) as (broker, route):
                refusals = route.queue.refusals
                for seq in (1, 2):
                    await put(broker.log, f"t/{seq}", bytes(400), seq)
                await until(lambda: route.queue.state.refused_messages == 2)
                await client.jetstream().delete_stream("S")
                reader = await client.subscribe("t.>")  # it answers nothing
                await client.flush()
                refusals.send_again({refusals.all()[0].position})
                got = [(await reader.next_msg(DEADLINE_S)).subject]
                refusals.send_again()
                while got[-1] != "t.2":
                    got.append((await reader.next_msg(DEADLINE_S)).subject)
                assert got == ["t.1", "t.2"]


async def test_a_message_that_has_expired_does_not_go(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client, routed(tmp_path, nats_config(server)) as (broker, route):
            await client.jetstream().add_stream(name="S", subjects=["t.>"])
            for seq, expires_ms in enumerate((0, 1, 1 << 50), 1):
                await put(broker.log, f"t/{seq}", seq=seq, expires_ms=expires_ms)
            await drained(route)
            assert [one.subject for one in await stored_in(client, "S")] == ["t.1", "t.3"]
            assert broker.counters.messages_dropped["expired"] == 1


async def test_a_full_stream_stops_the_route_and_loses_nothing(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client, routed(tmp_path, nats_config(server)) as (broker, route):
            jetstream = client.jetstream()
            await jetstream.add_stream(name="S", subjects=["telemetry.>"], max_msgs=5, discard="new")
            await append(broker.log, range(1, 9))
            await until(lambda: "maximum messages exceeded" in route.queue.state.stands)
            await jetstream.update_stream(name="S", subjects=["telemetry.>"], max_msgs=100, discard="new")
            await drained(route)
            assert [one.data for one in await stored_in(client, "S")] == [b"%d" % number for number in range(1, 9)]


async def test_properties_go_as_headers_where_that_is_asked_for(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        config = nats_config(server, export_headers=True, export_properties=True)
        async with connected(server) as client, routed(tmp_path, config) as (broker, route):
            await client.jetstream().add_stream(name="S", subjects=["t.>"])
            pairs = [("unit", "Cel"), ("two", "1"), ("two", "2"), ("é", "ü"), ("hf-hops", "0000001f")]
            found = {properties.CONTENT_TYPE: "text/plain", properties.USER_PROPERTY: pairs}
            await put(broker.log, "t/1", properties=found)
            await drained(route)
            headers = (await stored_in(client, "S"))[0].headers
        assert headers["Content-Type"] == "text/plain" and headers["unit"] == "Cel"
        assert headers["mqtt-user-properties"] == '[["two", "1"], ["two", "2"], ["\\u00e9", "\\u00fc"]]'
        assert headers["hf-hops"] == f"0000001f,{broker.log.hop}"


async def test_servers_are_tried_in_their_order_and_each_fault_is_told(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        dead = "nats://127.0.0.1:1"
        async with routed(tmp_path, nats_config(server, servers=[dead, dead, server.url])) as (_, route):
            await until(lambda: route.queue.state.server == server.url)
        async with routed(tmp_path / "2", nats_config(server, servers=[dead])) as (_, route):
            await until(lambda: "nats://127.0.0.1:1: cannot connect" in route.problem)
            assert not route.queue.status().connected


async def test_a_server_that_refuses_the_login_does_not_keep_the_next_one_from_being_used(tmp_path: Path) -> None:
    with (
        nats_server(tmp_path / "1", 'authorization { user: "u", password: "p" }') as first,
        nats_server(tmp_path) as server,
    ):
        async with connected(server) as client:
            await client.jetstream().add_stream(name="S", subjects=["t.>"])
            config = nats_config(server, servers=[first.url, server.url])
            async with routed(tmp_path / "gateway", config) as (broker, route):
                await put(broker.log, "t/1")
                await has_messages(client, "S", 1)
                assert (route.queue.state.server, route.queue.state.reconnects) == (server.url, 0)


async def test_a_wrong_password_is_told_and_the_right_one_is_read_again(tmp_path: Path) -> None:
    with nats_server(tmp_path, 'authorization { user: "u", password: "right" }') as server:
        password = tmp_path / "password"
        password.write_text("wrong\n")
        password.chmod(0o600)
        config = nats_config(server, user="u", password_file=str(password))
        async with routed(tmp_path / "gateway", config) as (_, route):
            await until(lambda: "Authorization Violation" in route.problem)
            assert "Authorization Violation" in route.queue.state.login_refused
            password.write_text("right\n")
            await until(lambda: route.queue.state.connected)
            assert route.queue.state.login_refused == ""


async def test_a_credentials_file_of_another_account_is_told_and_the_right_one_is_read_again(tmp_path: Path) -> None:
    account, other = Account(), Account()
    file = tmp_path / "gateway.creds"
    with nats_server(tmp_path, account.lines) as server:
        config = nats_config(server, credentials=str(file))
        async with routed(tmp_path / "gateway", config) as (broker, route):
            await until(lambda: str(file) in route.problem)
            other.add_user(file)
            await until(lambda: "Authorization Violation" in route.problem)
            account.add_user(file)
            await until(lambda: route.queue.state.connected)
            async with connected(server, user_credentials=str(file)) as client:
                await client.jetstream().add_stream(name="S", subjects=["telemetry.>"])
                await append(broker.log, range(1, 4))
                await has_messages(client, "S", 3)


async def test_a_subject_that_is_not_permitted_is_set_aside(tmp_path: Path) -> None:
    lines = 'authorization { users: [ { user: "u", password: "p", permissions: { publish: { deny: "t.secret" } } } ] }'
    with nats_server(tmp_path, lines) as server:
        password = tmp_path / "password"
        password.write_text("p")
        password.chmod(0o600)
        config = nats_config(server, user="u", password_file=str(password))
        async with connected(server, user="u", password="p") as client:
            await client.jetstream().add_stream(name="S", subjects=["t.>"])
            async with routed(tmp_path / "gateway", config) as (broker, route):
                for seq, topic in enumerate(["t/1", "t/secret", "t/2"], 1):
                    await put(broker.log, topic, seq=seq)
                await drained(route)
                assert "not permit" in (await route.queue.refusals.messages())[0].reason
            assert [one.subject for one in await stored_in(client, "S")] == ["t.1", "t.2"]


async def test_messages_wait_while_the_server_is_down_and_each_arrives_once(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with routed(tmp_path / "gateway", nats_config(server)) as (broker, route):
            async with connected(server) as client:
                await client.jetstream().add_stream(name="S", subjects=["telemetry.>"])
            await append(broker.log, range(1, 501))
            await until(lambda: route.queue.state.acknowledged_ms > 0)
            await asyncio.to_thread(server.kill)
            await append(broker.log, range(501, 601))
            await until(lambda: not route.queue.state.connected)
            server.start()
            await drained(route)
            async with connected(server) as client:
                payloads = [one.data for one in await stored_in(client, "S")]
        assert sorted(payloads, key=int) == [b"%d" % number for number in range(1, 601)]


async def test_all_waits_for_each_receiver(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        config = nats_config(server, delivery_mode="all", stream="S", receivers=["r1", "r2"])
        async with connected(server) as client:
            jetstream = client.jetstream()
            await jetstream.add_stream(name="S", subjects=["telemetry.>"])
            first = await jetstream.pull_subscribe("telemetry.>", "r1", "S")
            async with routed(tmp_path / "gateway", config) as (broker, route):
                await append(broker.log, range(1, 4))
                for message in await first.fetch(3, 20):
                    await message.ack_sync(DEADLINE_S)
                await until(lambda: "there is no receiver 'r2'" in route.queue.status().problem)
                second = await jetstream.pull_subscribe("telemetry.>", "r2", "S")
                for message in await second.fetch(3, 20):
                    await route.queue.watch.count()
                    assert route.queue.state.backlog_messages > 0
                    await message.ack_sync(DEADLINE_S)
                await drained(route)


async def test_what_a_receiver_gives_up_is_set_aside(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        keys = {"delivery_mode": "all", "stream": "S", "receivers": ["r1"], "preserve_undelivered": "receivers"}
        async with connected(server) as client:
            jetstream = client.jetstream()
            await jetstream.add_stream(name="S", subjects=["telemetry.>"])
            receiver = await jetstream.pull_subscribe("telemetry.>", "r1", "S")
            async with routed(tmp_path / "gateway", nats_config(server, **keys)) as (broker, route):
                await append(broker.log, range(1, 2))
                (message,) = await receiver.fetch(1, 20)
                await message.term()
                await drained(route)
                assert "'r1' gave it up" in (await route.queue.refusals.messages())[0].reason


async def test_messages_are_shared_among_receivers(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        keys: dict[str, Any] = {"stream": "S", "receivers": ["r2", "r1"], "balance": "round_robin"}
        async with connected(server) as client:
            jetstream = client.jetstream()
            await jetstream.add_stream(name="S", subjects=["telemetry.>"])
            for name in keys["receivers"]:
                await jetstream.pull_subscribe(f"telemetry.*.{name}", name, "S")
            async with routed(tmp_path, nats_config(server, **keys)) as (broker, route):
                await append(broker.log, range(1, 5))
                await drained(route)
                subjects = [one.subject for one in await stored_in(client, "S")]
        assert subjects == ["telemetry.a.r2", "telemetry.a.r1"] * 2


async def test_a_route_that_starts_anew_drops_what_waited_with_a_range(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client, running_broker(tmp_path / "gateway") as broker:
            await client.jetstream().add_stream(name="S", subjects=["telemetry.>"])
            former = ForeignRoute(nats_config(server), "gateway-1", broker.log)
            await append(broker.log, range(1, 4))
            former.queue.lanes.live.close()
            route = ForeignRoute(nats_config(server, start="anew"), "gateway-1", broker.log)
            async with serving(route):
                await append(broker.log, range(4, 6))
                await drained(route)
            assert [one.data for one in await stored_in(client, "S")] == [b"4", b"5"]
            assert broker.counters.messages_dropped["unrouted"] == 3


async def test_flows_of_a_route_that_led_to_an_mqtt_broker_end_with_their_messages_there(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client, running_broker(tmp_path / "gateway") as broker:
            await client.jetstream().add_stream(name="S", subjects=["telemetry.>"])
            route = ForeignRoute(nats_config(server), "gateway-1", broker.log)
            await append(broker.log, range(1, 6))
            deliveries = await route.queue.lanes.live.fetch_now(3)
            await route.queue.outgoing.begin(route.queue.lanes.live, deliveries, ())
            async with serving(route):
                await has_messages(client, "S", 5)
                await until(lambda: not route.queue.outgoing.flows)
                await drained(route)
            assert sorted(one.data for one in await stored_in(client, "S")) == [b"1", b"2", b"3", b"4", b"5"]


async def test_what_a_full_stream_does_not_take_of_such_flows_goes_when_it_has_room(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client, running_broker(tmp_path / "gateway") as broker:
            jetstream = client.jetstream()
            await jetstream.add_stream(name="S", subjects=["telemetry.>"], max_msgs=1, discard="new")
            route = ForeignRoute(nats_config(server), "gateway-1", broker.log)
            await append(broker.log, range(1, 4))
            deliveries = await route.queue.lanes.live.fetch_now(3)
            await route.queue.outgoing.begin(route.queue.lanes.live, deliveries, ())
            async with serving(route):
                await until(lambda: "maximum messages exceeded" in route.queue.state.stands)
                await jetstream.update_stream(name="S", subjects=["telemetry.>"], max_msgs=100, discard="new")
                await until(lambda: not route.queue.outgoing.flows)
            assert sorted(one.data for one in await stored_in(client, "S")) == [b"1", b"2", b"3"]
            assert route.queue.state.reconnects == 0


async def test_a_route_that_is_changed_goes_on_at_its_place(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client, running_broker(tmp_path / "gateway") as broker:
            await client.jetstream().add_stream(name="S", subjects=["one.>", "two.>"])
            routes = Routes([nats_config(server, project="one")], "gateway-1", broker.log, broker.services.endings)
            task = asyncio.create_task(routes.run())
            await append(broker.log, range(1, 4))
            await has_messages(client, "S", 3)
            await until(lambda: not routes.status()[0].backlog_messages)
            routes.reload([nats_config(server, project="two")])
            await until(lambda: routes.states[0].connected and routes.states[0].reconnects == 0)
            await append(broker.log, range(4, 6))
            await has_messages(client, "S", 5)
            status = routes.status()[0]
            assert (status.server, status.problem, status.name) == (server.url, "", "nats")
            task.cancel()
            await asyncio.wait({task})
            subjects = [one.subject for one in await stored_in(client, "S")]
            assert subjects[:3] == ["one.telemetry.a"] * 3 and "two.telemetry.a" in subjects


async def test_a_pong_counts_for_messages_only_if_its_ping_was_behind_them(tmp_path: Path) -> None:
    """The client library writes a PING at once, also while messages wait for the line."""
    read_on = asyncio.Event()
    is_taken = asyncio.Event()
    tokens: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload": 1048576, "headers": true}\r\n')
        while line := await reader.readline():
            if line.startswith(b"HPUB"):
                is_taken.set()
                await read_on.wait()
                tokens.append("message")
                await reader.readexactly(int(line.split()[-1]) + 2)
            elif line.startswith(b"PING"):
                tokens.append("ping")
                writer.write(b"PONG\r\n")

    async with raw_broker(talk, buffer_bytes=4096) as port, running_broker(tmp_path) as broker:
        keys = {"kind": "nats", "servers": [f"nats://127.0.0.1:{port}"], "delivery_mode": "best_effort", **FAST}
        route = ForeignRoute(msgspec.convert(keys, NatsConfig), "gateway-1", broker.log)
        async with serving(route):
            for seq in range(1, 41):
                await put(broker.log, "t/1", bytes(100_000), seq)
            await is_taken.wait()
            read_on.set()
            await drained(route)
            assert tokens.count("message") == 40 and tokens[-1] == "ping"
