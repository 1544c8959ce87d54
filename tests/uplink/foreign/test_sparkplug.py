"""A gateway as an edge node of Sparkplug B: births before data, and history is flagged.

Payloads are read with the library of Protocol Buffers, by the fields of the specification.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker import Broker
from gateway.connectors.reading import Reading
from gateway.connectors.senml import encode as senml
from gateway.message import Message
from tests.gateway.support import Client, connected, joined, until
from tests.uplink.foreign.sparkplug_reader import metrics_in
from tests.uplink.foreign.support import FAST, drained, routed
from tests.uplink.support import of_3_1_1
from tools.lab.testing.mosquitto import Mosquitto, MosquittoUnavailable
from tools.lab.testing.network_link import NetworkLink
from uplink.foreign.config import SparkplugConfig
from uplink.foreign.route import ForeignRoute
from uplink.foreign.sparkplug import connection
from uplink.foreign.sparkplug import edge_node as module
from uplink.foreign.sparkplug.edge_node import EdgeNode, Publish
from uplink.foreign.sparkplug.payload import Metric, asks_for_births, datatype_of, encode
from wire.codec import packets

pytest.importorskip("google.protobuf", reason="protobuf is not installed")

from cloud.transforms.sparkplug_payload import Payload, parse

NOW_MS = 1_790_000_000_000
HOSTILE = "a/b+c#%\u202e{{x}}"


def node(silent_ms: int = 3_600_000) -> EdgeNode:
    made = EdgeNode("site", "gw", "gateway-1", silent_ms)
    made.next_death(NOW_MS)
    made.birth(NOW_MS)
    return made


def data(
    edge: EdgeNode,
    payload: bytes,
    device: str = "roof",
    accepted_ms: int = NOW_MS,
    now_ms: int = NOW_MS,
    steady_ms: int = 0,
) -> list[tuple[str, Any]]:
    """The kinds and payloads of what a message becomes."""
    message = Message("t", payload, publisher=device, received_ms=accepted_ms)
    return [read(one) for one in edge.data(edge.parcel(message, "hop"), now_ms, steady_ms)]


def read(one: Publish | packets.Publish) -> tuple[str, Any]:
    levels = one.topic.split("/")
    assert levels[:2] == ["spBv1.0", "site"] and levels[3] == "gw"
    return levels[2], parse(one.payload)


def values(payload: Any) -> dict[str, Any]:
    return {one.name: getattr(one, one.WhichOneof("value") or "is_null") for one in payload.metrics}


def test_a_device_is_born_before_its_first_data_and_again_with_a_metric_that_is_new() -> None:
    edge = node()
    assert [kind for kind, _ in data(edge, b'{"t": 21.5}')] == ["DBIRTH", "DDATA"]
    assert [kind for kind, _ in data(edge, b'{"t": 22}')] == ["DDATA"]
    (kind, birth), (_, then) = data(edge, b'{"t": 23, "open": true, "by": "badge 7"}')
    assert (kind, values(birth)) == ("DBIRTH", {"t/t": 23.0, "t/open": True, "t/by": "badge 7"})
    assert [one.datatype for one in birth.metrics] == [10, 11, 12]
    assert values(then) == values(birth)


def test_a_metric_whose_type_changes_is_born_anew() -> None:
    edge = node()
    data(edge, b'{"t": 21.5}')
    (kind, birth), _ = data(edge, b'{"t": "warm"}')
    assert (kind, birth.metrics[0].datatype, values(birth)) == ("DBIRTH", 12, {"t/t": "warm"})


def test_a_type_that_changes_all_the_time_costs_few_births_and_loses_no_value() -> None:
    edge = node()
    found = [data(edge, one) for one in (b"1.5", b'"on"', b"true") * 30]
    assert sum(kind == "DBIRTH" for one in found for kind, _ in one) <= module.TYPE_CHANGES_MAX + 2
    assert [values(one[-1][1])["t"] for one in found[-3:]] == ["1.5", "on", "True"]


@pytest.mark.parametrize("number", [2**53, -(2**53) - 1, 2**63 - 1, -(2**63) + 1])
def test_an_integer_arrives_as_it_is(number: int) -> None:
    edge = node()
    (_, _), (_, then) = data(edge, b"%d" % number)
    ((_, after),) = data(edge, b"%d" % (number // abs(number) * 2**53))
    read_back = values(then)["t"]
    assert read_back in (number, number + 2**64)  # two's complement
    assert after.metrics[0].datatype == then.metrics[0].datatype == (10 if number == 2**53 else 4)


def test_long_names_that_differ_stay_different() -> None:
    edge = node()
    for end in "ab":
        assert [kind for kind, _ in data(edge, b"1", device="x" * 300 + end)] == ["DBIRTH", "DDATA"]
    names = [msgspec.json.encode({"y" * 300 + end: 1}) for end in "ab"]
    assert [kind for one in names for kind, _ in data(edge, one)] == ["DBIRTH", "DDATA"] * 2


def test_devices_behind_another_gateway_are_devices_of_their_own() -> None:
    edge = node()
    topics = []
    for origin in ("pump", "fan"):
        message = Message(
            "t", b"1", publisher="link", origin=origin, epoch=1, seq=1, received_by="gateway-2", received_ms=NOW_MS
        )
        topics += [one.topic for one in edge.data(edge.parcel(message, "hop"), NOW_MS, 0)]
    assert topics[::2] == ["spBv1.0/site/DBIRTH/gw/pump", "spBv1.0/site/DBIRTH/gw/fan"]


def test_a_reader_with_descriptors_of_its_own_reads_the_same() -> None:
    metrics = [Metric("a", 10, 1.5, NOW_MS, unit="Cel"), Metric("b", 4, -7, NOW_MS, is_historical=True)]
    metrics += [Metric("c", 11, True, NOW_MS), Metric("d", 12, "x", NOW_MS), Metric("e", 10, None, NOW_MS)]
    assert metrics_in(encode(NOW_MS, 3, metrics)) == [
        ("a", 10, 1.5, False),
        ("b", 4, -7, True),
        ("c", 11, True, False),
        ("d", 12, "x", False),
        ("e", 10, None, False),
    ]


def test_seq_counts_from_the_birth_of_the_node_and_begins_again_behind_255() -> None:
    edge = EdgeNode("site", "gw", "gateway-1", 1000)
    edge.next_death(NOW_MS)
    found = [read(edge.birth(NOW_MS))[1].seq]
    for _ in range(300):
        found += [one.seq for _, one in data(edge, b"1")]
    assert found == [number % 256 for number in range(302)]


def test_the_death_has_the_number_of_its_birth_and_each_connection_the_next() -> None:
    edge = EdgeNode("site", "gw", "gateway-1", 1000)
    numbers = []
    for _ in range(3):
        death = read(edge.next_death(NOW_MS))[1]
        birth = read(edge.birth(NOW_MS))[1]
        assert not death.HasField("seq") and values(birth)["Node Control/Rebirth"] is False
        numbers.append((values(death)["bdSeq"], values(birth)["bdSeq"]))
    assert numbers == [(0, 0), (1, 1), (2, 2)]


def test_what_waited_is_flagged_as_history_and_never_the_value_of_a_birth() -> None:
    edge = node()
    (_, birth), (_, late) = data(edge, b'{"t": 1}', accepted_ms=NOW_MS - 5000)  # before the connection
    assert birth.metrics[0].is_null and late.metrics[0].is_historical
    ((_, fresh),) = data(edge, b'{"t": 2}')
    assert not fresh.metrics[0].is_historical and values(fresh) == {"t/t": 2.0}
    for age_ms in (90_000, 10_000):
        ((_, old),) = data(edge, b'{"t": 3}', accepted_ms=NOW_MS, now_ms=NOW_MS + age_ms)[-1:]
        assert old.metrics[0].is_historical is (age_ms > 60_000)
    reading = senml("x", NOW_MS - 30_000, [Reading("t", 4.0, "Cel")], "json")
    (_, birth), _ = data(edge, reading, device="cellar")
    assert birth.metrics[0].properties.values[0].string_value == "Cel"
    (*_, (_, older)) = data(edge, senml("x", NOW_MS - 40_000, [Reading("t", 5.0, "Cel")], "cbor"), device="cellar")
    assert older.metrics[0].is_historical
    edge.birth(NOW_MS)
    assert [values(read(one)[1]) for one in edge.births(NOW_MS)][-1] == {"t/t": 4.0}


def test_a_silent_device_is_told_to_be_dead_and_born_when_it_comes_back() -> None:
    edge = node(silent_ms=1000)
    data(edge, b"1")
    assert list(edge.deaths(NOW_MS, 999)) == []
    assert [read(one)[0] for one in edge.deaths(NOW_MS, 1000)] == ["DDEATH"]
    assert [kind for kind, _ in data(edge, b"2")] == ["DBIRTH", "DDATA"]


def test_a_clock_that_is_set_kills_no_device_and_makes_no_history() -> None:
    edge = node(silent_ms=1000)
    day_ms = 86_400_000
    data(edge, b"1")
    assert list(edge.deaths(NOW_MS + day_ms, 999)) == []
    earlier_ms = NOW_MS - day_ms
    data(edge, b"2", accepted_ms=earlier_ms, now_ms=earlier_ms)
    ((_, fresh),) = data(edge, b"3", accepted_ms=earlier_ms + 10, now_ms=earlier_ms + 10)
    assert not fresh.metrics[0].is_historical
    edge.birth(earlier_ms)
    assert [values(read(one)[1]) for one in edge.births(earlier_ms)] == [{"t": 3.0}]
    assert [read(one)[0] for one in edge.deaths(earlier_ms, 1000)] == ["DDEATH"]


def test_devices_and_metrics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEVICES_MAX", 2)
    edge = node()
    for name in ("a", "b"):
        data(edge, b"1", device=name)
    assert [kind for kind, _ in data(edge, b"1", device="c")] == ["DDEATH", "DBIRTH", "DDATA"]
    many = msgspec.json.encode({f"v{number}": number for number in range(200)})
    assert len(data(edge, many, device="c")[0][1].metrics) == module.METRICS_MAX


@pytest.mark.parametrize("fields", [{"vs": "\U00010348" * 255}, {"u": "\U00010348" * 700, "v": 1}])
def test_no_device_makes_a_birth_of_more_than_128_kib(fields: dict[str, Any]) -> None:
    """Some brokers take no larger message, and end the connection over one each time."""
    edge = node()
    for number in range(module.METRICS_MAX):
        name = (str(number) + "\U00010348" * 260)[: 260 if "vs" in fields else 200]
        data(edge, msgspec.json.encode([{"bn": "x", "bt": NOW_MS / 1000, "n": name, **fields}]))
    edge.birth(NOW_MS)
    (birth,) = edge.births(NOW_MS)
    assert len(parse(birth.payload).metrics) == module.METRICS_MAX
    assert len(birth.payload) < 128 * 1024


def test_names_make_no_levels_and_come_as_they_are() -> None:
    edge = node()
    message = Message("t", msgspec.json.encode({HOSTILE: 1}), publisher=HOSTILE, received_ms=NOW_MS)
    birth, _ = edge.data(edge.parcel(message, "hop"), NOW_MS, 0)
    assert birth.topic == "spBv1.0/site/DBIRTH/gw/a%2Fb%2Bc%23%25%E2%80%AE{{x}}"
    assert parse(birth.payload).metrics[0].name == f"t/{HOSTILE}"


def test_what_is_no_reading_becomes_nothing() -> None:
    edge = node()
    assert [data(edge, one) for one in (b"", b"hello", b"NaN", b'{"a": [1]}', b"\xff", b"x" * 10_000)] == [[]] * 6


@given(st.lists(st.tuples(st.text(max_size=20), st.one_of(st.booleans(), st.floats(), st.text(max_size=300)))))
def test_the_library_reads_what_is_written(found: list[tuple[str, Any]]) -> None:
    metrics = [Metric(name, datatype_of(value), value, NOW_MS, unit=name[:3]) for name, value in found]
    payload = parse(encode(NOW_MS, 7, metrics))
    assert (payload.timestamp, payload.seq) == (NOW_MS, 7)
    read_back = [(one.name, getattr(one, one.WhichOneof("value"))) for one in payload.metrics]
    assert repr(read_back) == repr([(name, value) for name, value in found])  # so that NaN is NaN


@given(st.binary(max_size=300))
def test_a_command_of_any_bytes_is_read_or_refused(payload: bytes) -> None:
    with suppress(ValueError):
        assert asks_for_births(payload) in (True, False)


def command(name: str, value: bool) -> bytes:
    payload = Payload(timestamp=NOW_MS)
    payload.metrics.add(name="Node Control/Next Server", datatype=11, boolean_value=True)
    payload.metrics.add(name=name, datatype=11, boolean_value=value)
    return bytes(payload.SerializeToString())


def test_only_the_metric_of_rebirth_that_is_true_asks_for_births() -> None:
    assert asks_for_births(command("Node Control/Rebirth", True))
    assert not asks_for_births(command("Node Control/Rebirth", False))
    assert not asks_for_births(command("Node Control/Reboot", True))


@contextmanager
def mosquitto(folder: Path) -> Iterator[Mosquitto]:
    folder.mkdir()
    try:
        broker = Mosquitto(folder)
    except MosquittoUnavailable as error:
        pytest.skip(str(error))
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def config(port: int, **keys: Any) -> SparkplugConfig:
    usual = {"kind": "sparkplug", "servers": [f"mqtt://127.0.0.1:{port}"], "group": "site", "edge_node": "gw", **FAST}
    return msgspec.convert({**usual, **keys}, SparkplugConfig)


def gateway_with(folder: Path, port: int) -> AbstractAsyncContextManager[tuple[Broker, ForeignRoute]]:
    """A gateway with a route that runs."""
    return routed(folder, config(port), gateway_name="test-gateway")


async def host_of(broker: Mosquitto) -> Client:
    return await joined(broker.port, "host", "spBv1.0/#")


async def kinds(host: Client, count: int) -> list[tuple[str, Any]]:
    return [read(await host.receive()) for _ in range(count)]


async def test_a_host_gets_births_data_and_at_the_end_the_death(tmp_path: Path) -> None:
    with mosquitto(tmp_path / "hosts") as broker:
        host = await host_of(broker)
        async with gateway_with(tmp_path / "gateway", broker.port) as (gateway, route):
            device = await connected(gateway, "roof")
            (kind, birth) = (await kinds(host, 1))[0]
            assert (kind, birth.seq) == ("NBIRTH", 0)
            await device.publish("site/roof", b'{"t": 21.5}')
            found = await kinds(host, 2)
            assert [(kind, one.seq, values(one)) for kind, one in found] == [
                ("DBIRTH", 1, {"site/roof/t": 21.5}),
                ("DDATA", 2, {"site/roof/t": 21.5}),
            ]
            assert not found[1][1].metrics[0].is_historical
            await drained(route)
        ((kind, death),) = await kinds(host, 1)
        assert (kind, values(death)) == ("NDEATH", {"bdSeq": values(birth)["bdSeq"]})


async def test_a_host_that_asks_gets_all_births_again(tmp_path: Path) -> None:
    with mosquitto(tmp_path / "hosts") as broker:
        host = await host_of(broker)
        async with gateway_with(tmp_path / "gateway", broker.port) as (gateway, _):
            for name in ("roof", "cellar"):
                await (await connected(gateway, name)).publish("site/t", b"1")
            await kinds(host, 5)
            for payload in (b"\xff\xff", command("Node Control/Rebirth", True)):
                host.send("spBv1.0/site/NCMD/gw", payload, qos=0)
                assert (await host.receive()).topic == "spBv1.0/site/NCMD/gw"
            found = await kinds(host, 3)
            assert [(kind, one.seq) for kind, one in found] == [("NBIRTH", 0), ("DBIRTH", 1), ("DBIRTH", 2)]
            assert [values(one) for _, one in found[1:]] == [{"site/t": 1.0}] * 2


async def test_known_devices_are_born_with_each_connection(tmp_path: Path) -> None:
    """A device that sends once an hour would be dead to hosts until then."""
    with mosquitto(tmp_path / "hosts") as broker:
        host = await host_of(broker)
        async with gateway_with(tmp_path / "gateway", broker.port) as (gateway, route):
            await (await connected(gateway, "roof")).publish("site/t", b"1")
            await drained(route)
            found = await kinds(host, 3)
            thief = await Client("test-gateway-nats").connect(broker.port)  # a broker lets no two use one identifier
            again = await kinds(host, 3)
            thief.cut()
        assert [kind for kind, _ in found] == ["NBIRTH", "DBIRTH", "DDATA"]
        assert [kind for kind, _ in again] == ["NDEATH", "NBIRTH", "DBIRTH"]


async def test_a_host_that_asks_while_births_go_gets_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REBIRTH_S", 0.2)
    with mosquitto(tmp_path / "hosts") as broker:
        host = await host_of(broker)
        async with gateway_with(tmp_path / "gateway", broker.port) as (gateway, _):
            await (await connected(gateway, "roof")).publish("site/t", b"1")
            await kinds(host, 3)
            for _ in range(2):  # the second one comes before the next births may go
                host.send("spBv1.0/site/NCMD/gw", command("Node Control/Rebirth", True), qos=0)
                births = [await host.receive() for _ in range(3)]
                assert sorted(one.topic.split("/")[2] for one in births) == ["DBIRTH", "NBIRTH", "NCMD"]


async def test_a_retained_command_is_not_carried_out(tmp_path: Path) -> None:
    with mosquitto(tmp_path / "hosts") as broker:
        host = await host_of(broker)
        other = await Client("other").connect(broker.port)
        await other.publish("spBv1.0/site/NCMD/gw", command("Node Control/Rebirth", True), retain=True)
        assert (await host.receive()).topic == "spBv1.0/site/NCMD/gw"
        async with gateway_with(tmp_path / "gateway", broker.port) as (gateway, route):
            device = await connected(gateway, "roof")
            for number in range(3):
                await device.publish("site/t", b"%d" % number)
                await drained(route)  # each time the route has subscribed again
            assert [kind for kind, _ in await kinds(host, 5)] == ["NBIRTH", "DBIRTH", *["DDATA"] * 3]


async def test_a_broker_that_speaks_mqtt_3_1_1_only_will_do(tmp_path: Path) -> None:
    with mosquitto(tmp_path / "hosts") as broker:
        host = await host_of(broker)
        async with of_3_1_1(broker.port) as port, gateway_with(tmp_path / "gateway", port):
            assert [kind for kind, _ in await kinds(host, 1)] == ["NBIRTH"]


async def test_a_gateway_whose_name_has_levels_is_one_node(tmp_path: Path) -> None:
    with mosquitto(tmp_path / "hosts") as broker:
        host = await host_of(broker)
        async with routed(tmp_path / "gateway", config(broker.port, edge_node=None), gateway_name="site/1"):
            assert (await host.receive()).topic == "spBv1.0/site/NBIRTH/site%2F1"


async def test_what_waited_while_the_link_was_cut_comes_behind_births_as_history(tmp_path: Path) -> None:
    with mosquitto(tmp_path / "hosts") as broker:
        host, link = await host_of(broker), NetworkLink("127.0.0.1", broker.port)
        async with gateway_with(tmp_path / "gateway", await link.open()) as (gateway, route):
            device = await connected(gateway, "roof")
            await device.publish("site/t", b"1")
            assert [kind for kind, _ in await kinds(host, 3)] == ["NBIRTH", "DBIRTH", "DDATA"]
            await drained(route)
            await link.cut()
            assert [kind for kind, _ in await kinds(host, 1)] == ["NDEATH"]
            for number in range(2, 5):
                await device.publish("site/t", b"%d" % number)
            accepted_ms = int(time.time() * 1000)
            await until(lambda: time.time() * 1000 > accepted_ms + 1, "a later millisecond")
            await link.open()
            found = await kinds(host, 5)
            await link.cut()
        assert [kind for kind, _ in found] == ["NBIRTH", "DBIRTH", *["DDATA"] * 3]
        assert values(found[1][1]) == {"site/t": 1.0}
        assert [values(one)["site/t"] for _, one in found[2:]] == [2.0, 3.0, 4.0]
        assert all(one.metrics[0].is_historical for _, one in found[2:])
        assert all(one.metrics[0].timestamp <= accepted_ms for _, one in found[2:])


async def test_a_broker_that_refuses_the_login_is_told_of(tmp_path: Path) -> None:
    with mosquitto(tmp_path / "hosts") as broker:
        (tmp_path / "hosts/mosquitto.conf").write_text(f"listener {broker.port} 127.0.0.1\nallow_anonymous false\n")
        await broker.down()
        broker.start()
        async with gateway_with(tmp_path / "gateway", broker.port) as (_, route):
            await until(lambda: route.queue.state.login_refused, "the refusal is told")
            assert "not authorized" in route.queue.state.login_refused.lower()
