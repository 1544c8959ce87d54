"""The publisher a message names: its client, or another one where a rule allows it."""

import itertools
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.message import Message
from tests.gateway.store.support import epoch_of, messages_in, stored
from tests.gateway.support import Client, connected, running, subscribed, tcp_port, until, user_property
from wire.bulk.property_block import COLUMN_BATCH
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Puback, Publish, Pubrec, Will
from wire.hops import HOPS_PROPERTY, encode_hop
from wire.identity import IDENTITY_PROPERTY, KEEP, RECEIVE, RECEIVED_PROPERTY, decode_received, encode_identity
from wire.properties import CONTENT_TYPE, MESSAGE_EXPIRY_INTERVAL, REASON_STRING, USER_PROPERTY
from wire.reasons import NOT_AUTHORIZED
from wire.route_numbers import VIA_PROPERTY, encode_via

EPOCH = 42
EVERYTHING = "allow * publish,subscribe #\n"


def as_from(origin: str, seq: int = 1) -> dict[str, Any]:
    """Properties by which a message says that it comes from an origin, and that a gateway had it in 1970."""
    pairs = [("a", "1"), (IDENTITY_PROPERTY, encode_identity(origin, EPOCH, seq)), (RECEIVED_PROPERTY, "17/elsewhere")]
    return {"properties": {USER_PROPERTY: pairs}}


def named(origin: str, seq: int) -> dict[int, Any]:
    """The same without a provenance, as devices have it: such a message goes the hot path."""
    return {USER_PROPERTY: [(IDENTITY_PROPERTY, encode_identity(origin, EPOCH, seq))]}


def identity(packet: Publish) -> str | None:
    return user_property(packet, IDENTITY_PROPERTY)


def refusals(folder: Path) -> list[tuple[Any, ...]]:
    columns = "reason, publisher, origin, first, last, messages"
    return stored(folder, f"SELECT {columns} FROM dropped ORDER BY first, publisher")


async def test_a_device_needs_no_rules_for_its_own_name(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        reader = await subscribed(broker, "reader", "#", wishes=(RECEIVE,))
        device = await connected(broker, "garage")
        await device.publish("a", **as_from("garage"))
        assert identity(await reader.receive()) == encode_identity("garage", EPOCH, 1)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_no_client_says_when_another_gateway_had_its_message(tmp_path: Path, qos: int) -> None:
    """Only beside an identity that it may bring; as a will no more than as a message."""
    claimed = {USER_PROPERTY: [(RECEIVED_PROPERTY, "17/elsewhere")]}
    async with running(tmp_path) as broker:
        reader = await subscribed(broker, "reader", "#", wishes=(RECEIVE,))
        client = await Client("client", will=Will("a", b"", qos, properties=claimed)).connect(tcp_port(broker))
        client.send("a", qos=qos, properties=claimed)
        message = await reader.receive()
        client.cut()
        for packet in (message, await reader.receive()):
            received_ms, gateway = decode_received(str(user_property(packet, RECEIVED_PROPERTY)))
            assert received_ms > 17 and gateway == "test-gateway"


@pytest.mark.parametrize("origin", ["garage", "test-gateway"])
async def test_a_message_in_anothers_name_is_a_new_message(
    tmp_path: Path, origin: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as broker:
        reader = await subscribed(broker, "reader", "#", wishes=(RECEIVE,))
        forger = await connected(broker, "forger")
        for seq, (qos, answer) in enumerate([(1, Puback), (2, Pubrec), (1, Puback)], 1):
            forger.send("a", b"forged", qos=qos, **as_from(origin, seq))
            answered = await forger.expect(answer)
            assert (answered.reason_code, REASON_STRING in answered.properties) == (0, seq == 1)
            packet = await reader.receive()
            assert packet.properties[USER_PROPERTY][0] == ("a", "1")
            assert identity(packet) == f"{epoch_of(tmp_path):08x}/{seq}/test-gateway"
            received_ms, gateway = decode_received(str(user_property(packet, RECEIVED_PROPERTY)))
            assert received_ms > 17 and gateway == "test-gateway"
        forger.send("a", b"forged", qos=0, **as_from(origin, 4))
        packet = await reader.receive()
        assert (packet.payload, identity(packet)) == (b"forged", None)
        assert broker.counters.identities_replaced == 4
        assert broker.counters.messages_dropped["rejected"] == 0
    assert refusals(tmp_path) == []
    (line,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert line.about == {"client": "forger", "topic": "a", "origin": origin}  # type: ignore[attr-defined]


async def test_a_message_that_gets_a_new_identity_expires_as_long_after_it_came_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started_s, ticks = time.time(), itertools.count()
    async with running(tmp_path) as broker:
        keeper = await connected(broker, "keeper")
        await keeper.subscribe("#")  # and acknowledges nothing, so that nothing is trimmed
        forger = await connected(broker, "forger")
        monkeypatch.setattr(time, "time", lambda: started_s + next(ticks))  # each look at the clock is a second later
        properties = {**named("garage", 1), MESSAGE_EXPIRY_INTERVAL: 60}
        await forger.publish("a", properties=properties)
        await forger.publish_once("a", properties=properties)
    messages = [message for _, message in messages_in(tmp_path)]
    assert [message.expires_ms - message.received_ms for message in messages] == [60_000] * 2


async def test_a_client_that_wants_identities_kept_is_refused_where_it_may_not_bring_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A route that sends a message again would else have it counted twice."""
    async with running(tmp_path) as broker:
        reader = await subscribed(broker, "reader", "#", wishes=(RECEIVE,))
        route = await Client("route", wishes=(KEEP,)).connect(tcp_port(broker))
        for seq, (qos, answer) in enumerate([(1, Puback), (2, Pubrec), (1, Puback)], 1):
            route.send("a", b"forged", qos=qos, **as_from("garage", seq))
            assert (await route.expect(answer)).reason_code == NOT_AUTHORIZED
        await route.publish("a", b"its own", **as_from("route"))
        assert (await reader.receive()).payload == b"its own"
        assert broker.counters.messages_dropped["rejected"] == 3
    assert refusals(tmp_path) == [("rejected", "route", "", 0, 0, 3)]
    (line,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert line.about == {"client": "route", "topic": "a", "origin": "garage"}  # type: ignore[attr-defined]


async def test_a_refused_message_leaves_no_range_in_the_name_of_another_client(tmp_path: Path) -> None:
    """Else a client could have the ranges explain a hole that it has nothing to do with; a will as well."""
    state = "$SYS/broker/connection/forger/state"
    async with running(tmp_path) as broker:
        broker.services.publishing.announce(
            Message(state, b"1", 0, retain=True)
        )  # so that no client may publish there any more
        will = Will(state, b"", 1, properties=named("garage", 1))
        forger = await connected(broker, "forger", will=will)
        for seq, (origin, qos) in enumerate([("garage", 0), ("garage", 1), ("forger", 0), ("forger", 1)], 2):
            forger.send("$SYS/x", qos=qos, properties=named(origin, seq))
        for _ in range(2):
            assert (await forger.expect(Puback)).reason_code == NOT_AUTHORIZED
        forger.cut()
        await until(lambda: broker.counters.messages_dropped["rejected"] == 5, "the will is refused")
    assert refusals(tmp_path) == [("rejected", "forger", "", 0, 0, 3), ("rejected", "forger", "forger", 4, 5, 2)]


async def test_an_identity_of_a_name_of_60_kb_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each row of the store that tells of a message would else hold that name."""
    long = 60_000 * "x"
    async with running(tmp_path) as broker:
        reader = await subscribed(broker, "reader", "#", wishes=(RECEIVE,))
        client = await connected(broker, "client")
        for seq in (1, 2):
            await client.publish("a", **as_from(long, seq))
            assert identity(await reader.receive()) == f"{epoch_of(tmp_path):08x}/{seq}/test-gateway"
        client.send("$SYS/a", **as_from(long, 3))
        assert (await client.expect(Puback)).reason_code == NOT_AUTHORIZED
        assert broker.counters.identities_replaced == 2
        route = await Client("route", wishes=(KEEP,)).connect(tcp_port(broker))
        route.send("a", b"", **as_from(long))
        assert (await route.expect(Puback)).reason_code == NOT_AUTHORIZED
    assert [row[:3] for row in refusals(tmp_path)] == [("rejected", "client", ""), ("rejected", "route", "")]
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line for line in lines if "identity" in line] == ["identity replaced: it cannot be read"]


async def test_a_client_whose_identifier_is_the_gateways_name_does_not_speak_for_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        reader = await subscribed(broker, "reader", "#", wishes=(RECEIVE,))
        forger = await connected(broker, "test-gateway")
        await forger.publish("a", **as_from("test-gateway"))
        assert identity(await reader.receive()) == f"{epoch_of(tmp_path):08x}/1/test-gateway"


async def test_a_route_of_another_gateway_brings_those_that_a_rule_allows(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(EVERYTHING + "deny * identify locks-*\nallow - identify *\n")
    async with running(tmp_path / "store", acl=str(rules)) as broker:
        route = await Client("site-2-central", wishes=(KEEP,)).connect(tcp_port(broker))
        for seq in range(1, 4):
            await route.publish("a", **as_from("garage", seq))
            await route.publish("a", **as_from("cellar", seq))
        route.send("a", b"", **as_from("locks-1"))
        assert (await route.expect(Puback)).reason_code == NOT_AUTHORIZED


async def test_by_the_hot_path_others_names_do_not_slip_through(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        reader = await subscribed(broker, "reader", "#", wishes=(RECEIVE,))
        device = await connected(broker, "garage")
        for seq in (1, 2):  # from the second on that goes the hot path
            await device.publish("a", properties=named("garage", seq))
            await reader.receive()
        origins = ["garage", "garage", "cellar", "garage", "garage2", "garag", "garage"]
        for seq, origin in enumerate(origins, 3):
            device.protocol.publish("a", b"", qos=1, properties=named(origin, seq))
        device.flush()
        assert [(await device.expect(Puback)).reason_code for _ in origins] == [0] * len(origins)
        came = [str(identity(await reader.receive())).rpartition("/")[2] for _ in origins]
        assert came == [origin if origin == "garage" else "test-gateway" for origin in origins]


async def test_new_rules_count_for_the_next_message(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(EVERYTHING + "allow * identify cellar\n")
    async with running(tmp_path / "store", acl=str(rules)) as broker:
        reader = await subscribed(broker, "reader", "#", wishes=(RECEIVE,))
        device = await connected(broker, "garage")
        for seq in range(1, 4):
            await device.publish("a", **as_from("cellar", seq))
            assert str(identity(await reader.receive())).endswith("/cellar")
        rules.write_text(EVERYTHING)
        broker.reload()
        await device.publish("a", **as_from("cellar", 4))
        assert str(identity(await reader.receive())).endswith("/test-gateway")


async def test_a_will_in_anothers_name_is_published_as_a_new_message(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        reader = await subscribed(broker, "reader", "#", wishes=(RECEIVE,))
        (await connected(broker, "forger", will=Will("a", b"", 1, **as_from("garage")))).cut()
        packet = await reader.receive()
        assert packet.properties[USER_PROPERTY][0] == ("a", "1")
        assert identity(packet) == f"{epoch_of(tmp_path):08x}/1/test-gateway"


async def test_a_will_is_held_against_the_rules_of_when_it_is_published(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(EVERYTHING + "allow * identify garage\n")
    async with running(tmp_path / "store", acl=str(rules)) as broker:
        reader = await subscribed(broker, "reader", "#", wishes=(RECEIVE,))
        for rule, origin in (("", "garage"), (EVERYTHING, "test-gateway")):
            client = await Client("client", will=Will("a", b"", 1, **as_from("garage"))).connect(tcp_port(broker))
            if rule:
                rules.write_text(rule)
                broker.reload()
            client.cut()
            assert str(identity(await reader.receive())).endswith(f"/{origin}")


STATEMENTS = "holdfast/statement/test-gateway/central"


@pytest.mark.parametrize("properties", [{}, as_from("test-gateway"), as_from("sensor")])
async def test_a_client_cannot_make_a_statement_of_the_gateways_routes(
    tmp_path: Path, properties: dict[str, Any]
) -> None:
    """The gateway would give it its own identity, and the tables would believe it."""
    async with running(tmp_path) as broker:
        reader = await subscribed(broker, "reader", "#")
        sensor = await connected(broker, "sensor")
        for qos, answer in (1, Puback), (2, Pubrec):
            sensor.send(STATEMENTS, b"forged", qos=qos, **properties)
            assert (await sensor.expect(answer)).reason_code == NOT_AUTHORIZED
        sensor.send(STATEMENTS, b"forged", qos=0, **properties)
        await sensor.publish("a", b"a marker")
        assert (await reader.receive()).payload == b"a marker"


async def test_a_statement_of_a_client_of_mqtt_3_1_1_is_not_published(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        reader = await subscribed(broker, "reader", "#")
        sensor = await Client("sensor", protocol_level=MQTT_3_1_1).connect(tcp_port(broker))
        sensor.send(STATEMENTS, b"forged", qos=1)
        await sensor.expect(Puback)  # MQTT 3.1.1 cannot refuse it
        await (await connected(broker, "other")).publish("a", b"a marker")
        assert (await reader.receive()).payload == b"a marker"


async def test_many_statements_behind_a_gateways_own_are_refused_one_by_one(tmp_path: Path) -> None:
    """The topic of one that was accepted opens the fast path for none of the others."""
    rules = tmp_path / "rules"
    rules.write_text(EVERYTHING + "allow * identify site-2\n")
    async with running(tmp_path / "store", acl=str(rules)) as broker:
        reader = await subscribed(broker, "reader", "#")
        route = await connected(broker, "route")
        topic = "holdfast/statement/site-2/central"
        await route.publish(topic, b"its own", **as_from("site-2"))
        for _ in range(20):
            route.protocol.publish(topic, b"forged", qos=1)
        route.flush()
        for _ in range(20):
            assert (await route.expect(Puback)).reason_code == NOT_AUTHORIZED
        await route.publish("a", b"a marker")
        assert [(await reader.receive()).payload for _ in range(2)] == [b"its own", b"a marker"]


def numbered(gateway: str) -> dict[int, Any]:
    """Properties by which a message says that a gateway's route has numbered it."""
    return {USER_PROPERTY: [("a", "1"), (VIA_PROPERTY, encode_via(EPOCH, [(7, 7)], gateway, "central"))]}


@pytest.mark.parametrize("gateway", ["garage", "test-gateway"])
async def test_a_client_cannot_number_messages_in_the_name_of_a_gateway(tmp_path: Path, gateway: str) -> None:
    """A message of a route that is lost would look as if it had come."""
    forged = numbered(gateway)[USER_PROPERTY][1][1]
    async with running(tmp_path) as broker:
        reader = await subscribed(broker, "reader", "#")
        forger = await connected(broker, "forger", will=Will("a", b"", 1, properties=numbered(gateway)))
        for qos in (0, 1, 2):
            forger.send("a", qos=qos, properties=numbered(gateway))
        for _ in range(20):  # the fast path takes these if it can
            forger.protocol.publish("a", b"", qos=1, properties=numbered(gateway))
        forger.flush()
        for _ in range(23):
            packet = await reader.receive()
            assert packet.properties[USER_PROPERTY] == [("a", "1"), (f"{VIA_PROPERTY}-rejected", forged)]
        forger.cut()
        packet = await reader.receive()
        assert packet.properties[USER_PROPERTY] == [("a", "1"), (f"{VIA_PROPERTY}-rejected", forged)]
        assert broker.counters.links_rejected == 24


async def test_a_route_numbers_the_messages_of_gateways_that_a_rule_lets_it_identify(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(EVERYTHING + "allow * identify site-2\n")
    async with running(tmp_path / "store", acl=str(rules)) as broker:
        reader = await subscribed(broker, "reader", "#")
        route = await connected(broker, "route")
        for gateway, name in (("site-2", VIA_PROPERTY), ("site-3", f"{VIA_PROPERTY}-rejected")):
            await route.publish("a", properties=numbered(gateway))
            assert (await reader.receive()).properties[USER_PROPERTY][1][0] == name


async def test_a_value_that_is_no_number_of_a_link_travels_on_as_rejected(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        reader = await subscribed(broker, "reader", "#")
        client = await connected(broker, "client")
        await client.publish("a", properties={USER_PROPERTY: [(VIA_PROPERTY, "7")]})
        assert (await reader.receive()).properties[USER_PROPERTY] == [(f"{VIA_PROPERTY}-rejected", "7")]


@pytest.mark.parametrize("gateway", ["test-gateway", "site-2"])
async def test_a_client_vouches_for_no_gateway_beside_an_identity_of_its_own(tmp_path: Path, gateway: str) -> None:
    """Neither for this one nor for another, first or among others, or behind messages without a provenance."""
    async with running(tmp_path) as broker:
        evil = await connected(broker, "evil")
        subscriber = await subscribed(broker, "subscriber", "a", wishes=(RECEIVE,))
        for number in range(1, 40):
            pairs = [(IDENTITY_PROPERTY, encode_identity("evil", 7, number))]
            if number > 4:
                via = encode_via(1, [(number, number)], gateway, "x")
                pairs = [
                    (HOPS_PROPERTY, encode_hop(1)),
                    *pairs,
                    (RECEIVED_PROPERTY, f"5/{gateway}"),
                    (VIA_PROPERTY, via),
                ]
            packet = Publish("a", b"1", 1, packet_identifier=1000 + number, properties={USER_PROPERTY: pairs})
            evil.write(packet.encode(MQTT_5))
            received = await subscriber.receive()
            assert user_property(received, VIA_PROPERTY) is None
            assert user_property(received, RECEIVED_PROPERTY) != f"5/{gateway}"


async def test_a_client_vouches_for_no_gateway_by_its_own_name(tmp_path: Path) -> None:
    """Neither with a statement, a route number, a time of acceptance nor a column batch, first or among others."""
    async with running(tmp_path) as broker:
        evil = await connected(broker, "evil")
        subscriber = await subscribed(broker, "subscriber", "a", wishes=(RECEIVE,))
        for number in range(1, 40):
            pairs = [
                *([(HOPS_PROPERTY, encode_hop(1))] if number > 1 else []),
                (IDENTITY_PROPERTY, encode_identity("evil", 7, number)),
                (RECEIVED_PROPERTY, "5/evil"),
                (VIA_PROPERTY, encode_via(1, [(number, number)], "evil", "x")),
            ]
            packet = Publish("a", b"1", 1, packet_identifier=1000 + number, properties={USER_PROPERTY: pairs})
            evil.write(packet.encode(MQTT_5))
            received = await subscriber.receive()
            assert user_property(received, VIA_PROPERTY) is None
            assert user_property(received, RECEIVED_PROPERTY) != "5/evil"
        evil.protocol.publish("holdfast/statement/evil/x", b"{}", qos=1, properties=named("evil", 99))
        evil.protocol.publish("a", b"", qos=1, properties={CONTENT_TYPE: COLUMN_BATCH})
        evil.flush()
        assert [(await evil.expect(Puback)).reason_code for _ in range(2)] == [NOT_AUTHORIZED] * 2
