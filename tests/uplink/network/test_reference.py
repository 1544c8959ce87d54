"""A client that speaks as docs/reference/network.md says is a neighbour of a gateway; another one is refused."""

import json
import re
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from gateway.config.network import SelectConfig
from tests.gateway.support import until
from tests.uplink.network.sites import Site
from tools.cli.paths import source_root
from tools.lab.testing.client import Client
from tools.lab.testing.mosquitto import mosquitto
from wire.codec.packets import Connack, Disconnect, Puback, Publish, Suback, Unsuback
from wire.identity import find_user_property
from wire.properties import REASON_STRING, USER_PROPERTY

PAGE = (source_root() / "docs/reference/network.md").read_text()
NOTHING_HEARD = "0000000000000000 0"
SUBSCRIBE_OPTIONS = 0b0001_1110  # as the page says: QoS 2, No Local, Retain As Published, Retain Handling 1


@asynccontextmanager
async def gateway_m(folder: Path) -> AsyncIterator[Site]:
    """The gateway M of the page's examples."""
    rules = "allow - neighbour A\nallow - neighbour M\nallow - identify *\nallow - publish,subscribe #\n"
    site = Site(folder, "M", rules=rules)
    site.expect(name="A", incoming=[SelectConfig("orders/#", "region = 'EU'")])
    async with site:
        yield site


def neighbour(heard: str = NOTHING_HEARD, **link: Any) -> Client:
    """A client of which the CONNECT has the properties of a neighbour."""
    properties = [("hf-link", json.dumps({"name": "A"} | link)), ("hf-heard", heard)]
    return Client("A-to-m", session_expiry_s=1000, clean_start=False, user_properties=properties)


def link_of(client: Client) -> dict[str, Any]:
    """What the CONNACK says of the link."""
    text = find_user_property(client.connack.properties, "hf-link")
    assert text is not None
    found: dict[str, Any] = json.loads(text)
    return found


async def heard_by(client: Client, topic: str = "$holdfast/interest") -> bytes:
    """The payload of the next message, which has to be of this topic."""
    packet = await client.expect(Publish)
    assert (packet.topic, packet.qos, packet.retain) == (topic, 0, False)
    return packet.payload


def cut_announcement(payload: bytes) -> tuple[int, str, list[str]]:
    """Kind, mark and texts of an announcement, by the page's grammar alone."""
    texts = zlib.decompress(payload[17:]).decode().split("\0")
    return payload[0], f"{payload[1:9].hex()} {int.from_bytes(payload[9:17], 'big')}", [one for one in texts if one]


def sum_of(*filters: str) -> list[int]:
    """The sum of filters, as the page says."""
    hashes = [int.from_bytes(blake2b(one.encode(), digest_size=8).digest(), "big") for one in filters]
    return [len(filters), sum(hashes) % 2**64]


async def ask(client: Client, *filters: str, options: int = SUBSCRIBE_OPTIONS) -> list[int]:
    """SUBSCRIBEs; returns the reason codes."""
    client.protocol.subscribe([(one, options) for one in filters])
    client.flush()
    return (await client.expect(Suback)).reason_codes


async def test_a_client_that_follows_the_page_is_a_neighbour(tmp_path: Path) -> None:
    async with gateway_m(tmp_path) as site:
        reader = await site.client("reader", "readings/+", "orders/1")
        a = await neighbour().connect(site.port)
        settings = link_of(a)
        assert settings["name"] == "M" and settings["incoming"] == [{"topic": "orders/#", "select": "region = 'EU'"}]
        states = json.loads(zlib.decompress(await heard_by(a, "$holdfast/links")))
        assert states == [["M", "A-to-m", 1, "A", "default", False]]
        kind, mark, texts = cut_announcement(await heard_by(a))
        assert (kind, texts) == (0, ["orders/1", "readings/+"])
        await reader.subscribe("answers")
        kind, changed, texts = cut_announcement(await heard_by(a))
        assert (kind, texts, changed) == (1, ["+answers"], f"{mark[:16]} {int(mark[17:]) + 1}")
        assert await ask(a, "commands/#") == [2]
        device = await site.client("device")
        device.send("commands/1", b"open", qos=1)
        packet = await a.expect(Publish)
        assert (packet.topic, packet.payload, packet.qos) == ("commands/1", b"open", 1)
        a.acknowledge(packet)
        await a.disconnect()
        a = await neighbour(changed).connect(site.port)
        assert link_of(a)["asked"] == sum_of("commands/#")
        await heard_by(a, "$holdfast/links")
        await reader.unsubscribe("answers")
        kind, _, texts = cut_announcement(await heard_by(a))  # it has heard all else already
        assert (kind, texts) == (1, ["-answers"])


async def test_hf_renew_ends_the_subscriptions_that_were_not_asked_for_over_the_connection(tmp_path: Path) -> None:
    async with gateway_m(tmp_path) as site:
        a = await neighbour().connect(site.port)
        await heard_by(a, "$holdfast/links")
        await heard_by(a)
        assert await ask(a, "a", "b", "c") == [2, 2, 2]
        await a.disconnect()
        a = await neighbour(asked=[1, 1]).connect(site.port)  # a sum of something else
        assert link_of(a)["asked"] == sum_of("a", "b", "c")
        await heard_by(a, "$holdfast/links")
        await heard_by(a)
        assert await ask(a, "b", "d") == [2, 2]
        a.protocol.unsubscribe(["#"], {USER_PROPERTY: [("hf-renew", "others")]})
        a.flush()
        assert (await a.expect(Unsuback)).reason_codes == [0]
        assert site.wanted_by_neighbours() == {"b", "d"}


def refusals() -> list[tuple[str, int, str]]:
    """The rows of the page's table of refusals: property, reason code, reason string."""
    part = PAGE.split("## What a gateway refuses", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `([^`]+)` \| (0x\w\w) \| (`+) ?(.*?) ?\3 \|$", part, re.MULTILINE)
    return [(link, int(code, 16), text) for link, code, _, text in rows]


@pytest.mark.parametrize(("link", "code", "text"), refusals())
async def test_what_the_page_says_is_refused_is_refused_in_its_words(
    tmp_path: Path, link: str, code: int, text: str
) -> None:
    async with gateway_m(tmp_path) as site:
        client = Client("A-to-m", session_expiry_s=1000, user_properties=[("hf-link", link)])
        await client.open(site.port)
        connack = await client.expect(Connack)
        assert (connack.reason_code, connack.properties[REASON_STRING]) == (code, text)


async def test_a_neighbour_whose_session_would_end_with_its_connection_is_refused(tmp_path: Path) -> None:
    async with gateway_m(tmp_path) as site:
        client = Client("A-to-m", session_expiry_s=0, user_properties=[("hf-link", '{"name":"A"}')])
        await client.open(site.port)
        connack = await client.expect(Connack)
        text = "a neighbour needs a session that outlives its connection"
        assert (connack.reason_code, connack.properties[REASON_STRING]) == (0x83, text)
        assert text in PAGE


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({}, "expected the gateway 'M', and 'N' answers [neighbour.name]"),
        ({"zone": "plant"}, "the server says: the link: zone is 'default' here and 'plant' at 'A'"),
    ],
)
async def test_a_route_to_another_gateway_than_the_one_it_expects_says_so(
    tmp_path: Path, answer: dict[str, Any], problem: str
) -> None:
    a, n = Site(tmp_path, "A"), Site(tmp_path, "N")
    a.dial(n.port, "M", **answer)
    async with a, n:
        await until(lambda: problem in a.routes.states[0].last_error, problem)
    assert problem.removeprefix("the server says: ") in PAGE


async def test_a_route_to_an_ordinary_broker_that_expects_a_gateway_says_so(tmp_path: Path) -> None:
    problem = "expected the gateway 'M', and an ordinary broker answers [neighbour.name]"
    a = Site(tmp_path, "A")
    with mosquitto(tmp_path) as port:
        a.dial(port, "M")
        async with a:
            await until(lambda: problem in a.routes.states[0].last_error, problem)
    assert problem in PAGE


async def test_link_states_that_are_not_valid_end_the_connection_with_the_reason(tmp_path: Path) -> None:
    async with gateway_m(tmp_path) as site:
        a = await neighbour().connect(site.port)
        await heard_by(a, "$holdfast/links")
        await heard_by(a)
        a.send("$holdfast/links", b"no zlib", qos=0)
        disconnect = await a.expect(Disconnect)
        assert (disconnect.reason_code, disconnect.properties[REASON_STRING][:29]) == (
            0x83,
            "the neighbour's link states: ",
        )


async def test_no_client_publishes_or_subscribes_below_the_topics_of_gateways(tmp_path: Path) -> None:
    async with gateway_m(tmp_path) as site:
        client = await site.client("client")
        assert await client.subscribe("$holdfast/#", "$holdfast/links") == [0x87, 0x87]
        client.send("$holdfast/links", b"", qos=1)
        assert (await client.expect(Puback)).reason_code == 0x87
