"""Logins over which two gateways become neighbours, and those over which they do not."""

from pathlib import Path
from typing import Any

import pytest

from gateway.auth.accounts import make_account, save_account
from tests.gateway.support import until
from tests.uplink.network.sites import RULES, Site, message_to
from tests.uplink.support import of_3_1_1
from tools.lab.testing.client import Client
from tools.lab.testing.mosquitto import mosquitto
from tools.lab.testing.network_link import NetworkLink
from wire.codec.packets import Connack
from wire.errors import Closed
from wire.properties import REASON_STRING
from wire.reasons import (
    CLIENT_IDENTIFIER_NOT_VALID,
    IMPLEMENTATION_SPECIFIC_ERROR,
    NOT_AUTHORIZED,
)

OPEN = "allow * publish,subscribe #\nallow - identify *\n"
ONE_CONDITION = '{"topic":"a","select":"a = 1"}'


async def says(site: Site, *parts: str) -> None:
    """Returns when a site's route says all of this as its problem."""
    await until(lambda: all(part in site.problem for part in parts), f"{site.name} says {parts}")


async def refused(site: Site, client: Client) -> Connack:
    """Returns the CONNACK that refuses a client."""
    await client.open(site.port)
    connack = await client.event()
    if isinstance(connack, Closed):
        return Connack(False, connack.reason_code)
    assert isinstance(connack, Connack)
    return connack


async def test_without_a_rule_the_login_is_refused_the_rule_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    a, m = Site(tmp_path, "a"), Site(tmp_path, "m", rules=OPEN)
    a.dial(m.port, "m", filters=("telemetry/#",))
    async with a, m:
        reader = await m.client("reader", "telemetry/#", session_expiry_s=1000)
        await says(a, "no access rule lets this user be the neighbour 'a': expected `allow - neighbour a`")
        device = await a.client("device")
        for number in range(10):
            await device.publish("telemetry/1", b"%d" % number)
        assert m.wanted_by_neighbours() == a.wanted_by_neighbours() == set()
        m.give_rules(RULES)
        assert [int((await message_to(reader)).payload) for _ in range(10)] == list(range(10))
        await a.wants("telemetry/#")


async def test_a_gateway_with_another_name_than_the_configured_one_is_no_neighbour(tmp_path: Path) -> None:
    a, m = Site(tmp_path, "a"), Site(tmp_path, "m")
    a.dial(m.port, "other")
    async with a, m:
        await m.client("reader", "orders")
        await says(a, "expected the gateway 'other', and 'm' answers [neighbour.name]")
        assert a.wanted_by_neighbours() == set()


async def test_an_ordinary_broker_in_a_gateways_place_is_no_neighbour(tmp_path: Path) -> None:
    a = Site(tmp_path, "a")
    with mosquitto(tmp_path) as port:
        a.dial(port, "m")
        async with a:
            await says(a, "expected the gateway 'm', and an ordinary broker answers [neighbour.name]")


async def test_a_broker_of_mqtt_3_1_1_is_no_neighbour(tmp_path: Path) -> None:
    a = Site(tmp_path, "a")
    with mosquitto(tmp_path) as port:
        async with of_3_1_1(port) as older:
            a.dial(older, None)
            async with a:
                await says(a, "MQTT 3.1.1")
                device = await a.client("device")
                assert (await device.publish("orders")).reason_code == 0x10  # no client is known to want it


async def test_a_neighbour_that_closes_a_few_times_is_spoken_to_in_mqtt_5_as_soon_as_it_answers(tmp_path: Path) -> None:
    """Over MQTT 3.1.1, which it would answer too, nothing can come down."""
    a, m = Site(tmp_path, "a"), Site(tmp_path, "m")
    connections: list[object] = []

    def cut_some(connection: object, is_from_a: bool, data: bytes) -> None:
        if is_from_a and connection not in connections:
            connections.append(connection)
            if len(connections) in (1, 2, 4):  # the third is one of MQTT 3.1.1
                link.break_after(len(data))

    link = NetworkLink("127.0.0.1", m.port, cut_some)
    a.dial(link.port, "m")
    async with a, m:
        await link.open()
        await a.linked()
        await link.cut()


async def test_a_gateway_that_is_named_like_this_one_is_no_neighbour(tmp_path: Path) -> None:
    a, m = Site(tmp_path / "1", "a"), Site(tmp_path / "2", "a")
    a.dial(m.port, "a")
    async with a, m:
        await says(a, "this gateway is named 'a' too: each gateway needs a name of its own")


@pytest.mark.parametrize(
    ("here", "there", "text"),
    [
        ({"zone": "north"}, {"zone": "south"}, "zone is 'south' here and 'north' at 'a'"),
        ({"hops": "one"}, {}, "hops is 'multi' here and 'one' at 'a'"),
        ({"mode": "active-passive"}, {}, "mode is 'active-active' here and 'active-passive' at 'a'"),
        ({"zone": "x"}, {"hops": "one"}, "zone is 'default' here and 'x' at 'a'; hops is 'one' here and 'multi' at"),
    ],
)
async def test_ends_that_disagree_are_no_neighbours_and_are_told_what_both_have(
    tmp_path: Path, here: dict[str, Any], there: dict[str, Any], text: str
) -> None:
    a, m = Site(tmp_path, "a"), Site(tmp_path, "m")
    a.dial(m.port, "m", **here)
    m.expect(name="a", **there)
    async with a, m:
        await m.client("reader", "orders")
        await says(a, text)
        assert a.wanted_by_neighbours() == set()
        assert [session.client_id for session in m.broker.sessions.all()] == ["reader"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "truncated"),
        ("[1]", "Expected `object`"),
        ('{"name":""}', "expected a name of 1 to 128 bytes"),
        ('{"name":"x","version":2}', "version"),
        ('{"name":"x","zone":""}', "expected a zone of 1 to 128 characters"),
        ('{"name":"x","hops":"two"}', "hops"),
        ('{"name":"%s"}' % ("x" * 200), "expected a name of 1 to 128 bytes"),
        ('{"name":"x","incoming":[{"topic":"a/#/b","select":"a = 1"}]}', "incoming 'a/#/b'"),
        ('{"name":"x","incoming":[{"topic":"a","select":"a ="}]}', "incoming 'a'"),
        (
            '{"name":"x","incoming":[' + ",".join(['{"topic":"a","select":"a = 1"}'] * 101) + "]}",
            "expected 100 at most",
        ),
        ("{" * 16_000, "hf-link"),
        ('{"name":"x"}' + " " * 16_384, "expected 16384 at most"),
    ],
)
async def test_a_property_that_cannot_be_taken_is_refused_with_the_reason_and_changes_nothing(
    tmp_path: Path, value: str, text: str
) -> None:
    async with Site(tmp_path, "m") as m:
        before = await m.client("client", "mine")
        user_properties = [("hf-link", value)]
        stranger = Client("client", user_properties=user_properties)
        connack = await refused(m, stranger)
        assert connack.reason_code == IMPLEMENTATION_SPECIFIC_ERROR
        assert text in connack.properties[REASON_STRING]
        before.send("mine", b"still here", qos=1)
        assert (await message_to(before)).payload == b"still here"
        assert m.wanted_by_neighbours() == set()


async def test_a_forged_property_needs_the_rule_of_the_name_that_it_says(tmp_path: Path) -> None:
    async with Site(tmp_path, "m", rules=OPEN + "allow - neighbour a\n") as m:
        connack = await refused(m, Client("client", user_properties=[("hf-link", '{"name":"b"}')]))
        assert connack.reason_code == NOT_AUTHORIZED
        assert "`allow - neighbour b`" in connack.properties[REASON_STRING]
        selecting = '{"name":"b","incoming":[{"topic":"a","select":"a ="}]}'
        connack = await refused(m, Client("client", user_properties=[("hf-link", selecting)]))
        assert connack.reason_code == NOT_AUTHORIZED, "no selector is read before"
        connack = await refused(m, Client("client", user_properties=[("hf-link", '{"name":"m"}')]))
        assert connack.reason_code == NOT_AUTHORIZED


async def test_a_neighbour_needs_a_session_that_outlives_its_connection(tmp_path: Path) -> None:
    async with Site(tmp_path, "m") as m:
        client = Client("client", session_expiry_s=0, user_properties=[("hf-link", '{"name":"x"}')])
        connack = await refused(m, client)
        assert "a session that outlives its connection" in connack.properties[REASON_STRING]


def users(folder: Path, *names: str) -> str:
    """A file of accounts, in which each password is the name."""
    path = folder / "accounts"
    for name in names:
        save_account(path, make_account(name, name.encode(), with_scram=False))
    return str(path)


async def test_a_neighbours_session_is_kept_from_a_client_of_another_user(tmp_path: Path) -> None:
    rules = OPEN.replace("-", "*") + "allow site-a neighbour a\n"
    m = Site(tmp_path, "m", accounts=users(tmp_path, "site-a", "mallory"), rules=rules)
    a = Site(tmp_path, "a")
    password = tmp_path / "password"
    password.write_text("site-a")
    password.chmod(0o600)
    a.dial(m.port, "m", user="site-a", password_file=str(password))
    async with a, m:
        reader = await a.client("reader", "orders")
        await m.wants("orders")
        mallory = Client("a-to-m", username="mallory", password=b"mallory")
        assert (await refused(m, mallory)).reason_code == CLIENT_IDENTIFIER_NOT_VALID
        mallory = Client(
            "other", username="mallory", password=b"mallory", user_properties=[("hf-link", '{"name":"a"}')]
        )
        assert (await refused(m, mallory)).reason_code == NOT_AUTHORIZED
        device = await Client("device", username="mallory", password=b"mallory").connect(m.port)
        await device.publish("orders", b"1")
        assert (await message_to(reader)).payload == b"1"


async def test_a_client_of_the_same_user_that_takes_over_the_session_is_an_ordinary_one(tmp_path: Path) -> None:
    a, m, b = (Site(tmp_path, name) for name in "amb")
    a.dial(m.port, "m")
    b.dial(m.port, "m")
    async with a, m, b:
        await a.client("reader", "orders")
        await b.wants("orders")
        await a.stop()
        client = await Client("a-to-m").connect(m.port)
        await b.wants("orders")
        assert m.wanted_by_neighbours() == set()
        device = await b.client("device")
        await device.publish("orders", b"1")
        assert (await message_to(client)).payload == b"1"
        await client.disconnect()
        await a.start()
        await m.linked(a)
        await m.wants("orders")
        await b.wants("orders")


@pytest.mark.parametrize("topic", ["$holdfast/interest", "$holdfast/links", "$holdfast/x"])
async def test_clients_neither_publish_nor_subscribe_where_gateways_talk(tmp_path: Path, topic: str) -> None:
    async with Site(tmp_path, "m") as m:
        client = await m.client("client")
        assert await client.subscribe(topic, "$holdfast/#", f"$share/g/{topic}") == [NOT_AUTHORIZED] * 3
        client.send(topic, b"forged", qos=1)
        answer = await client.event()
        assert getattr(answer, "reason_code", None) == NOT_AUTHORIZED
        client.send(topic, b"forged", qos=0)
        await client.publish("marker")
