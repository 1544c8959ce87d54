"""A route with rules: what arrives at the next broker, and that what does not arrive is known."""

import asyncio
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from queue import Queue

import msgspec
import pytest
from paho.mqtt.client import MQTTMessage
from paho.mqtt.publish import multiple

from gateway.message import Message
from gateway.store import MessageLog
from tests.gateway.store.support import stored
from tests.house.repository import ROOT
from tests.support.scripted_broker import scripted_broker, silent
from tests.support.subscriber import subscriber
from tests.tools.cli.gateway.running import Gateway
from tests.uplink.link_receiver import received_from
from tests.uplink.support import get, identity_of, note_session, opened, route_config, running, serving, until
from tests.uplink.test_reload import status, steered
from tools.lab.testing.mosquitto import mosquitto
from tools.lab.testing.network_link import NetworkLink
from uplink.carry import Imports
from uplink.config.route import RouteConfig
from uplink.route import Route
from uplink.shape import ShapeConfig
from wire.bulk.column_batch import decode_batch
from wire.reasons import IMPLEMENTATION_SPECIFIC_ERROR

MARKER = "marker"  # no rule is for it
RANGES = "SELECT reason, consumer, origin, first, last, messages FROM dropped ORDER BY origin, first"
SELECTED = "SELECT coalesce(sum(messages), 0) FROM dropped WHERE reason = 'selected' AND consumer = 'route/central'"
RENAMED = ShapeConfig("telemetry/#", topic="plant/{gateway}/{2-}", max_qos=1, retain="clear")


def config(port: int, *rules: ShapeConfig, **keys: object) -> RouteConfig:
    return route_config(port, shape=list(rules), **keys)


async def fill(
    log: MessageLog, numbers: Iterable[int], topic: str = "telemetry/a", qos: int = 1, *, retain: bool = False
) -> None:
    payloads = {one: json.dumps({"number": one, "third": one % 3 == 0}).encode() for one in numbers}
    await log.submit(
        [Message(topic, text, qos, retain, origin="a", epoch=7, seq=one) for one, text in payloads.items()]
    )


async def until_marker(log: MessageLog, received: "Queue[MQTTMessage]") -> list[MQTTMessage]:
    """Stores a message behind all others; returns what came before it, but for earlier markers that come again."""
    name = b"%d" % log.head
    await log.submit([Message(MARKER, name, 2)])
    found: list[MQTTMessage] = []
    while (message := await get(received)).topic != MARKER or message.payload != name:
        if message.topic != MARKER:
            found.append(message)
    return found


def publish(port: int, messages: list[tuple[str, bytes]]) -> None:
    """Publishes as a client of the gateway, at QoS 1; returns once all of it is acknowledged."""
    multiple([(topic, payload, 1, False) for topic, payload in messages], "127.0.0.1", port)


def numbers(messages: Iterable[MQTTMessage]) -> list[int]:
    return [json.loads(message.payload)["number"] for message in messages]


@pytest.mark.parametrize("qos", [1, 2])
async def test_messages_arrive_under_other_names_with_their_identities(tmp_path: Path, qos: int) -> None:
    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        async with opened(tmp_path) as log, running(log, config(port, RENAMED)):
            await fill(log, range(1, 4), qos=qos)
            await fill(log, range(4, 6), "telemetry/b/c", qos, retain=True)
            await fill(log, range(6, 8), "other/a", 2)
            found = await until_marker(log, received)
    assert [message.topic for message in found] == [
        *["plant/gateway-1/a"] * 3,
        *["plant/gateway-1/b/c"] * 2,
        *["other/a"] * 2,
    ]
    assert [message.qos for message in found] == [1] * 5 + [2] * 2
    assert [identity_of(message) for message in found] == [("a", 7, number) for number in range(1, 8)]


async def test_a_cleared_retain_flag_leaves_the_broker_no_retained_message(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port, subscriber(port) as received:
        async with opened(tmp_path) as log, running(log, config(port, RENAMED)):
            await fill(log, [1], retain=True)
            await fill(log, [2], "other/a", retain=True)
            await until_marker(log, received)
        with subscriber(port) as later:
            assert (await get(later)).topic == "other/a"
            async with opened(tmp_path) as log, running(log, config(port, RENAMED)):
                assert await until_marker(log, later) == []


@pytest.mark.parametrize("framing", ["publish", "batch"])
@pytest.mark.parametrize("qos", [1, 2])
async def test_over_a_link_that_is_cut_again_and_again_each_message_has_its_new_name(
    tmp_path: Path, framing: str, qos: int
) -> None:
    count, keys = 2000, {"framing": framing} | ({"batch_max_messages": 10} if framing == "batch" else {})
    rule = ShapeConfig("telemetry/#", topic="plant/{2-}", where="json.third")
    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        link = NetworkLink("127.0.0.1", port)
        await link.open()
        async with opened(tmp_path) as log, running(log, config(link.port, rule, **keys)):
            await fill(log, range(1, count + 1), qos=qos)
            found: list[tuple[str, int]] = []
            cuts = 0
            while len(set(found)) < count // 3:
                message = await get(received)
                if framing == "batch":
                    batch = decode_batch(bytes(message.payload)).messages()
                    found += [(one.topic, json.loads(one.payload)["number"]) for one in batch]
                else:
                    found.append((message.topic, json.loads(message.payload)["number"]))
                if len(found) // 100 > cuts:
                    cuts += 1
                    await link.cut()
                    await link.open()
            await until(lambda: log.counters.messages_dropped["selected"] == count - count // 3)
        await link.cut()
    assert sorted(set(found)) == [("plant/a", number) for number in range(3, count + 1, 3)]
    assert qos == 1 or len(found) == len(set(found))
    assert stored(tmp_path / "store", RANGES) == [("selected", "route/central", "a", 1, count, count - count // 3)]


@pytest.mark.parametrize(
    ("rule", "qos"),
    [
        ({"where": "json.third"}, 1),
        ({"where": "json.third"}, 2),
        ({"every": 3}, 2),
        ({"dead_band": 2.5, "field": "number"}, 2),
        # At QoS 2 the same is exact.
        pytest.param({"every": 3}, 1, marks=pytest.mark.long),
        pytest.param({"dead_band": 2.5, "field": "number"}, 1, marks=pytest.mark.long),
    ],
)
async def test_over_kills_each_message_arrives_or_is_counted_as_left_out(
    tmp_path: Path, seed: int, rule: dict[str, object], qos: int
) -> None:
    count = 1200
    keys = {"shape": [{"filter": "telemetry/#", **rule}]}
    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        async with opened(tmp_path) as log:
            Route(route_config(port), "gateway-1", log)
            await fill(log, range(1, count + 1), qos=qos)
            await log.submit([Message(MARKER, b"0", qos=2)])
        found: list[int] = []
        is_over = False
        while not is_over:
            command = ["-m", "tests.uplink.route_process", str(tmp_path / "store"), str(port), json.dumps(keys)]
            process = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT)
            goal = len(found) + 200
            while len(found) < goal and not is_over:
                message = await get(received)
                is_over = message.topic == MARKER
                found += [] if is_over else numbers([message])
            process.kill()
            await process.wait()
        last_keys = {"name": "central", "broker": f"mqtt://127.0.0.1:{port}", "statement_interval_s": 0, **keys}
        async with opened(tmp_path) as log, running(log, msgspec.convert(last_keys, RouteConfig)):
            found += numbers(await until_marker(log, received))
    left_out = stored(tmp_path / "store", SELECTED)[0][0]
    assert left_out + len(set(found)) >= count, "none is lost without a range"
    if "where" in rule:
        assert (sorted(set(found)), left_out) == (list(range(3, count + 1, 3)), count - count // 3)
    if qos == 2:
        assert (len(found), left_out + len(found)) == (len(set(found)), count)


@pytest.mark.parametrize("framing", ["publish", "batch"])
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_message_whose_name_cannot_be_rewritten_is_set_aside_and_goes_when_it_can(
    tmp_path: Path, framing: str, qos: int
) -> None:
    rule, better = (ShapeConfig("telemetry/#", topic=topic) for topic in ("plant/{3}", "plant/{topic}"))
    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        async with opened(tmp_path) as log, steered(log, config(port, rule)) as routes:
            await fill(log, [1], "telemetry/a/b", qos)
            await fill(log, [2], "telemetry/a", qos)
            await fill(log, [3], "telemetry/" + "a/" * 32_760 + "a", qos)
            await fill(log, [4], "telemetry/a/c", qos)
            assert [(one.topic, *numbers([one])) for one in await until_marker(log, received)] == [
                ("plant/b", 1),
                ("plant/a", 3),
                ("plant/c", 4),
            ]
            (refused,) = await routes.refused()
            assert refused.reason == "its topic name cannot be rewritten: 'telemetry/a' has no level 3 [shape]"
            assert routes.resend("central") == 1
            await until_marker(log, received)
            assert len(await routes.refused()) == 1, "it is set aside again"
            routes.reload([config(port, better, framing=framing)])
            await until(lambda: status(routes).reconnects == 0 and status(routes).connected)
            await fill(log, [5], "telemetry/" + "a/" * 32_760 + "a", qos)
            await until(lambda: status(routes).refused_messages == 2)
            assert "65" in (await routes.refused())[1].reason
            routes.resend("central")
            while (message := await get(received)).topic == MARKER:
                pass  # it comes again
            assert (message.topic, numbers([message])) == ("plant/telemetry/a", [2])


async def test_a_route_that_is_refused_a_message_sends_it_again_under_its_new_name(tmp_path: Path) -> None:
    async with scripted_broker(puback=lambda _: IMPLEMENTATION_SPECIFIC_ERROR) as broker, opened(tmp_path) as log:
        route = Route(config(broker.port, RENAMED), "gateway-1", log)
        async with serving(route):
            await fill(log, [1], retain=True)
            await until(lambda: route.queue.state.refused_messages == 1)
            broker.puback = lambda _: 0
            route.queue.refusals.send_again()
            await until(lambda: route.queue.state.refused_messages == 0)
    assert [(one.topic, one.retain) for one in broker.publishes[0]] == [("plant/gateway-1/a", False)] * 2


async def test_flows_of_qos_2_go_on_under_their_new_names_after_a_loss(tmp_path: Path) -> None:
    async with scripted_broker(puback=silent, session_present=True) as broker, opened(tmp_path) as log:
        route = Route(config(broker.port, ShapeConfig(topic="plant/{topic}")), "gateway-1", log)
        await note_session(log, route, broker.port)
        async with serving(route):
            await fill(log, range(1, 4), qos=2)
            await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 3)
            broker.puback = lambda _: 0
            broker.drop_clients()
            await until(lambda: log.space.needed_from == 3)
    before, after = broker.publishes
    assert [(one.topic, one.packet_identifier, one.dup) for one in after] == [
        ("plant/telemetry/a", one.packet_identifier, True) for one in before
    ]


async def test_messages_of_qos_0_are_selected_and_shaped_as_the_others(tmp_path: Path) -> None:
    rule = ShapeConfig("telemetry/#", topic="plant/{topic}", every=2)
    async with scripted_broker() as broker, opened(tmp_path) as log:
        route = Route(config(broker.port, rule, qos0="online"), "gateway-1", log)
        async with serving(route):
            await until(lambda: route.queue.state.connected and route.queue.unqueued.sender is not None)
            assert route.queue.lanes.live.offered is not None
            for number in range(5):
                route.queue.lanes.live.offered(Message("telemetry/a", b"%d" % number, 0))
            await until(lambda: bool(broker.publishes) and len(broker.publishes[0]) == 3)
    assert [(one.topic, int(one.payload), one.qos) for one in broker.publishes[0]] == [
        ("plant/telemetry/a", number, 0) for number in (0, 2, 4)
    ]
    assert stored(tmp_path / "store", SELECTED) == [(2,)]


async def test_a_reload_keeps_the_place_and_only_changed_rules_begin_anew(tmp_path: Path) -> None:
    rule, other = ShapeConfig("telemetry/#", every=4), ShapeConfig("telemetry/#", every=2)
    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        async with opened(tmp_path) as log, steered(log, config(port, rule)) as routes:
            await fill(log, range(1, 4), qos=2)
            assert numbers(await until_marker(log, received)) == [1]
            routes.reload([config(port, rule, keep_alive_s=20)])
            await fill(log, range(4, 6), qos=2)
            assert numbers(await until_marker(log, received)) == [5]
            routes.reload([config(port, other)])
            await until(lambda: status(routes).connected)
            await fill(log, range(6, 9), qos=2)
            assert numbers(await until_marker(log, received)) in ([6, 8], [7])
            routes.reload([config(port)])
            await fill(log, range(9, 11), qos=2)
            await until_marker(log, received)


async def test_a_backlog_file_has_all_messages_as_they_are_stored(tmp_path: Path) -> None:
    absent, path = 1, tmp_path / "backlog"
    rules = [ShapeConfig("telemetry/#", topic="plant/{topic}", every=5, max_qos=1)]
    async with opened(tmp_path / "from") as log, steered(log, config(absent, *rules, inflight_window=2)) as routes:
        await fill(log, range(1, 12), qos=2)
        assert await routes.export("central", path) == 11
    async with opened(tmp_path / "to") as log:
        cursor = Route(config(absent), "gateway-2", log).queue.lanes.live
        await Imports(log.folder, log, lambda message: [message], lambda _: True).import_file(path)
        found = [one.message for one in await cursor.fetch_now(100)]
    assert [(one.topic, one.seq, one.qos) for one in found] == [("telemetry/a", number, 2) for number in range(1, 12)]
    assert stored(tmp_path / "from/store", SELECTED) == [(0,)]


async def test_a_gateway_sends_by_the_rules_of_its_file_what_its_clients_publish(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port, subscriber(port) as received:
        gateway = Gateway(
            tmp_path,
            f'[[route]]\nname = "central"\nbroker = "mqtt://127.0.0.1:{port}"\nstatement_interval_s = 0\n'
            '[[route.shape]]\nfilter = "hall/+"\ntopic = "plant/{gateway}/{2}"\nwhere = "reading.t > 20"\n'
            '[[route.shape]]\nfilter = "noise"\nevery = 10\n',
        )
        with gateway.running():
            await asyncio.to_thread(
                publish, gateway.port, [("hall/a", b'[{"n":"t","v":%d}]' % number) for number in range(30)]
            )
            await asyncio.to_thread(publish, gateway.port, [("noise", b"x")] * 100 + [(MARKER, b"0")])
            found = []
            while (message := await get(received)).topic != MARKER:
                found.append((message.topic, bytes(message.payload)))
        assert found[:-10] == [("plant/garage/a", b'[{"n":"t","v":%d}]' % number) for number in range(21, 30)]
        assert found[-10:] == [("noise", b"x")] * 10


@pytest.mark.parametrize("framing", ["publish", "batch"])
async def test_statements_go_as_they_are_past_the_rules_and_count_what_these_let_through(
    tmp_path: Path, framing: str
) -> None:
    rules = [
        ShapeConfig("holdfast/#", topic="elsewhere", every=2),
        ShapeConfig("telemetry/#", topic="plant/{2-}", where="json.third"),
    ]
    keys = {"framing": framing, "statement_interval_s": 3600}
    wanted = {("a", 7, seq) for seq in range(12, 40, 3)}
    async with (
        scripted_broker() as broker,
        opened(tmp_path) as log,
        running(log, config(broker.port, *rules, **keys)),
    ):
        for connection in range(1, 4):
            await until(lambda: len(broker.connects) == connection)  # noqa: B023
            await fill(log, range(10 * connection, 10 * connection + 10))
            await until(lambda: log.space.needed_from == log.head)
            broker.drop_clients()
        await until(lambda: wanted <= received_from(broker.publishes).covered())
    receiver = received_from(broker.publishes)
    assert receiver.lost() == []
    assert {identity for identity in receiver.covered() if identity[0] == "a"} == wanted
    dropped = [one for statement in receiver.statements.values() for one in statement.dropped]
    assert {one.reason for one in dropped} == {"selected"}
