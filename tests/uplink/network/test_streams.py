"""Links carry the streams that both ends have."""

from pathlib import Path

import pytest

from gateway.config.load import load
from gateway.config.network import NetworkConfig
from gateway.config.schema import UnixConfig
from gateway.config.streams import StreamConfig
from host.errors import ConfigError
from tests.gateway.support import until
from tests.uplink.network.sites import RULES, Site
from tools.cli.gateway.config import read_configuration
from uplink.reading import decode_routes
from wire.codec.packets import Publish

OPEN = RULES + "allow * publish,subscribe $SYS/STREAM/+/#\n"
IN_PLANT = "$SYS/STREAM/plant/"


def site(folder: Path, name: str, *streams: str) -> Site:
    return Site(folder, name, rules=OPEN, stream=[StreamConfig(stream) for stream in streams])


async def linked(site: Site, stream: str) -> None:
    """Returns when the links that a site dials in a stream are up."""
    links = next(links for links in site.broker.stream_links if links.stream == stream)
    await until(lambda: links.status() and all(link.connected for link in links.status()), f"{site.name} is connected")


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_message_of_a_stream_reaches_a_subscriber_two_links_away_and_no_other_stream(
    tmp_path: Path, qos: int
) -> None:
    ends, middle = [site(tmp_path, name, "plant") for name in ("A", "B")], site(tmp_path, "M", "plant")
    for end in ends:
        end.dial(middle.port, "M")
    async with middle, ends[0] as a, ends[1] as b:
        for end in ends:
            for stream in ("", "plant"):
                await linked(end, stream)
        reader = await b.client("reader", f"{IN_PLANT}orders/#", options=qos)
        other = await b.client("other", "orders/#")
        publisher = await a.client("publisher")
        plant = next(one for one in a.broker.streams if one.name == "plant")
        await until(lambda: "orders/#" in plant.network.interest.filters(), "the interest is at A")
        await until(lambda: "orders/#" in a.broker.network.interest.filters(), "that of the default stream too")
        await publisher.publish(f"{IN_PLANT}orders/1", b"in the stream")
        await publisher.publish("orders/1", b"in the default stream")
        packet: Publish = await reader.receive()
        assert (packet.topic, packet.payload, packet.qos) == (f"{IN_PLANT}orders/1", b"in the stream", 1)
        assert (await other.receive()).payload == b"in the default stream"
        await reader.expect_no_message()


async def test_what_waits_in_a_stream_while_the_neighbour_is_down_arrives_when_it_is_back(tmp_path: Path) -> None:
    a, b = site(tmp_path, "A", "plant"), site(tmp_path, "B", "plant")
    b.dial(a.port, "A")
    async with a:
        async with b:
            await linked(b, "plant")
            reader = await b.client("reader", f"{IN_PLANT}orders/#", clean_start=False, session_expiry_s=1000)
            plant = next(one for one in a.broker.streams if one.name == "plant")
            await until(lambda: "orders/#" in plant.network.interest.filters(), "the interest is at A")
            await reader.disconnect()
        publisher = await a.client("publisher")
        for number in range(10):
            await publisher.publish(f"{IN_PLANT}orders/1", b"%d" % number)
        async with b:
            reader = await b.client("reader", clean_start=False, session_expiry_s=1000)
            assert [(await reader.receive()).payload for _ in range(10)] == [b"%d" % number for number in range(10)]


async def test_a_stream_that_the_neighbour_has_not_is_not_carried_and_the_others_are(tmp_path: Path) -> None:
    a, b = site(tmp_path, "A", "plant"), site(tmp_path, "B", "plant", "office")
    b.dial(a.port, "A")
    async with a, b:
        await linked(b, "plant")
        office = next(links for links in b.broker.stream_links if links.stream == "office")
        said = "no stream 'office' is served here"
        await until(lambda: said in office.status()[0].problem, "the neighbour refuses it")
        reader = await a.client("reader", f"{IN_PLANT}#")
        publisher = await b.client("publisher")
        plant = next(one for one in b.broker.streams if one.name == "plant")
        await until(lambda: "#" in plant.network.interest.filters(), "the interest is at B")
        await publisher.publish("$SYS/STREAM/office/t", b"it stays")
        await publisher.publish(f"{IN_PLANT}t", b"it goes")
        assert (await reader.receive()).payload == b"it goes"


async def test_a_link_carries_the_streams_that_it_is_to_carry(tmp_path: Path) -> None:
    a, b = site(tmp_path, "A", "plant", "office"), site(tmp_path, "B", "plant", "office")
    b.dial(a.port, "A", streams=("office",))
    async with a, b:
        await linked(b, "office")
        assert [[link.name for link in links.status()] for links in b.broker.stream_links] == [
            ["B-to-A"],
            [],
            ["B-to-A@office"],
        ]


async def test_a_plain_route_sends_the_messages_of_its_stream_without_the_prefix(tmp_path: Path) -> None:
    a, b = site(tmp_path, "A", "plant"), site(tmp_path, "B")
    a.dial(b.port, None, "up", is_link=False, stream="plant", filters=("#",))
    async with b, a:
        reader = await b.client("reader", "#")
        publisher = await a.client("publisher")
        await publisher.publish("t", b"it stays")
        await publisher.publish(f"{IN_PLANT}t", b"it goes up")
        packet = await reader.receive()
        assert (packet.topic, packet.payload) == ("t", b"it goes up")


async def test_a_stream_is_served_by_a_gateway_of_its_own_that_is_linked_by_a_unix_socket(tmp_path: Path) -> None:
    socket = tmp_path / "plant.sock"
    front, back = (
        site(tmp_path, "front", "plant"),
        Site(
            tmp_path,
            "back",
            rules=OPEN,
            stream=[StreamConfig("plant")],
            sockets=[UnixConfig(str(socket))],
        ),
    )
    front.dial(0, "back", broker=f"unix://{socket}", streams=("plant",))
    async with back, front:
        await linked(front, "plant")
        inside = await back.client("inside", f"{IN_PLANT}t")
        outside = await front.client("outside", f"{IN_PLANT}t")
        for gateway in (front, back):
            links = next(links for links in gateway.broker.stream_links if links.stream == "plant")
            await until(lambda links=links: links.status()[0].wanted == 1, "the interest is there")  # type: ignore[misc]
        await (await front.client("from-outside")).publish(f"{IN_PLANT}t", b"from outside")
        await (await back.client("from-inside")).publish(f"{IN_PLANT}t", b"from inside")
        for reader in (inside, outside):
            assert {(await reader.receive()).payload for _ in range(2)} == {b"from outside", b"from inside"}


@pytest.mark.parametrize("url", ["unix://relative", "unix:/x", "unix:///" + "x" * 108, "unix://"])
def test_a_route_to_a_path_that_is_no_unix_socket_is_refused_with_its_key(tmp_path: Path, url: str) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f'name = "a"\nstore.path = "s"\n[[route]]\nname = "r"\nbroker = "{url}"\n')
    with pytest.raises(ConfigError, match=r"route\[0\].broker: .*expected unix:///path"):
        decode_routes(file, load(file)[1])


def test_a_route_of_a_stream_that_there_is_not_is_refused_with_its_key(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(
        'name = "a"\nstore.path = "s"\n[[route]]\nname = "r"\nbroker = "mqtt://b"\nstream = "plant"\n'
        '[[route]]\nname = "s"\nbroker = "mqtt://b"\n[route.neighbour]\nname = "b"\nstreams = ["plant"]\n'
    )
    with pytest.raises(ConfigError) as found:
        read_configuration(file)
    assert f"{file}:6: route[0].stream: no stream is named 'plant'" in str(found.value)
    assert f"{file}:12: route[1].neighbour.streams: no stream is named 'plant'" in str(found.value)


@pytest.mark.parametrize("takes_by", ["dialling", "listening"])
async def test_a_gateway_that_takes_any_stream_has_those_of_its_neighbours_and_keeps_them(
    tmp_path: Path, takes_by: str
) -> None:
    taking = Site(tmp_path, "taking", rules=OPEN, network=NetworkConfig(streams="any"))
    having = site(tmp_path, "having", "plant")
    dialling, listening = (taking, having) if takes_by == "dialling" else (having, taking)
    dialling.dial(listening.port, listening.name)
    async with listening, dialling:
        await until(lambda: len(taking.broker.streams) == 2, "it has taken the stream")
        await until(lambda: any(links.status() for links in dialling.broker.stream_links[1:]), "it is dialled")
        await linked(dialling, "plant")
        here = await taking.client("here", f"{IN_PLANT}t", clean_start=False, session_expiry_s=1000)
        there = await having.client("there", f"{IN_PLANT}t")
        for gateway in (taking, having):
            links = next(links for links in gateway.broker.stream_links if links.stream == "plant")
            await until(lambda links=links: links.status()[0].wanted == 1, "the interest is there")  # type: ignore[misc]
        await (await taking.client("from-here")).publish(f"{IN_PLANT}t", b"from here")
        await (await having.client("from-there")).publish(f"{IN_PLANT}t", b"from there")
        for reader in (here, there):
            assert {(await reader.receive()).payload for _ in range(2)} == {b"from here", b"from there"}
        await here.disconnect()
        await (await taking.client("late")).publish(f"{IN_PLANT}t", b"it waits")
    async with taking:
        here = await taking.client("here", clean_start=False, session_expiry_s=1000)
        assert (await here.receive()).payload == b"it waits"


async def test_a_neighbour_with_a_thousand_streams_brings_eight(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each takes memory and open files; what is left out is one line in the log."""
    taking = Site(tmp_path, "taking", rules=OPEN, network=NetworkConfig(streams="any"))
    async with taking:
        taking.broker.network.note_streams(f"stream-{number}" for number in range(1000))
        await until(lambda: len(taking.broker.streams) == 9, "it has taken eight streams")
        taking.broker.network.note_streams(f"other-{number}" for number in range(1000))
        assert len(taking.broker.streams) == 9
    refused = [record.getMessage() for record in caplog.records if "are not taken" in record.getMessage()]
    assert [text.split()[0] for text in refused] == ["992", "1000"]


async def test_a_gateway_of_its_own_streams_takes_none(tmp_path: Path) -> None:
    a, b = site(tmp_path, "A"), site(tmp_path, "B", "plant")
    a.dial(b.port, "B")
    async with b, a:
        await linked(a, "")
        assert [one.name for one in a.broker.streams] == [""]
        client = await a.client("client")
        assert await client.subscribe(f"{IN_PLANT}t") == [0x8F]
