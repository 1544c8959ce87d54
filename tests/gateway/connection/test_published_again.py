"""QoS 2 from clients that publish a message a second time, and from clients that only seem to."""

from pathlib import Path

import pytest

from tests.gateway.steps import started
from tests.gateway.store.support import messages_in, stored
from tests.gateway.support import Client, GatewayProcess, connected, running, tcp_port
from wire.codec.packets import MQTT_3_1_1, Pubcomp, Publish, Pubrec, Pubrel
from wire.identity import IDENTITY_PROPERTY
from wire.properties import USER_PROPERTY


async def published(client: Client, packet_identifier: int, payload: bytes, *, dup: bool = False) -> None:
    """Publishes at QoS 2, up to the PUBCOMP."""
    client.send("a", payload, qos=2, packet_identifier=packet_identifier, dup=dup)
    assert (await client.expect(Pubrec)).packet_identifier == packet_identifier
    client.release(packet_identifier)
    assert (await client.expect(Pubcomp)).packet_identifier == packet_identifier


async def acknowledge(client: Client, message: Publish) -> None:
    """Returns when the gateway knows of the acknowledgement."""
    client.acknowledge(message)
    await (client.ping() if message.qos == 1 else client.expect(Pubrel))


async def back(client: Client, gateway: GatewayProcess, name: str = "client") -> Client:
    client.cut()
    client = await Client(name).connect(gateway.port)
    assert client.connack.session_present
    return client


def payloads(folder: Path) -> list[bytes]:
    return [message.payload for _, message in messages_in(folder)]


@pytest.mark.parametrize("dup", [False, True])
@pytest.mark.parametrize("is_killed", [False, True], ids=["cut", "killed"])
async def test_what_paho_publishes_behind_its_pubrel_again_is_stored_once(
    tmp_path: Path, is_killed: bool, dup: bool
) -> None:
    gateway = await started(tmp_path)
    client = await Client("client").connect(gateway.port)
    await published(client, 1, b"1")
    for number in (2, 3):
        client.send("a", b"%d" % number, qos=2, packet_identifier=number)
        await client.expect(Pubrec)
    for number in (2, 3):
        client.release(number)
        await client.expect(Pubcomp)
    for _ in range(2):
        if is_killed:
            await gateway.restart()
        client = await back(client, gateway)
        for number in (2, 3):
            client.send("a", b"%d" % number, qos=2, packet_identifier=number, dup=dup)
            await client.expect(Pubrec)
        for number in (2, 3):
            client.release(number)
            await client.expect(Pubcomp)
    await published(client, 4, b"4")
    assert payloads(tmp_path) == [b"1", b"2", b"3", b"4"]


async def test_another_content_is_a_new_message(tmp_path: Path) -> None:
    gateway = await started(tmp_path)
    client = await Client("client").connect(gateway.port)
    await published(client, 1, b"1")
    client = await back(client, gateway)
    await published(client, 1, b"2")
    assert payloads(tmp_path) == [b"1", b"2"]


@pytest.mark.parametrize("kind", ["identity", "retained"])
async def test_another_identity_or_a_retained_message_is_new(tmp_path: Path, kind: str) -> None:
    """A status that is published at each start comes again behind the client's will, and has to count."""
    gateway = await started(tmp_path)
    client = await Client("client").connect(gateway.port)
    for seq in (5, 6):
        identity = {USER_PROPERTY: [(IDENTITY_PROPERTY, f"00000001/{seq}/client")]} if kind == "identity" else {}
        client.send("a", b"1", qos=2, packet_identifier=1, retain=kind == "retained", properties=identity)
        await client.expect(Pubrec)
        client.release(1)
        await client.expect(Pubcomp)
        client = await back(client, gateway)
    assert payloads(tmp_path) == [b"1", b"1"]


async def test_what_comes_behind_a_new_message_is_new(tmp_path: Path) -> None:
    gateway = await started(tmp_path)
    client = await Client("client").connect(gateway.port)
    await published(client, 1, b"1")
    client = await back(client, gateway)
    await published(client, 2, b"2")
    await published(client, 1, b"1")
    assert payloads(tmp_path) == [b"1", b"2", b"1"]


async def test_a_client_that_says_goodbye_has_had_its_answers(tmp_path: Path) -> None:
    gateway = await started(tmp_path)
    for _ in range(2):
        client = await Client("client").connect(gateway.port)
        await published(client, 1, b"open")
        await client.disconnect()
    assert payloads(tmp_path) == [b"open", b"open"]


async def test_a_client_that_gives_an_identifier_again_means_new_messages(tmp_path: Path) -> None:
    gateway = await started(tmp_path)
    client = await Client("client").connect(gateway.port)
    for _ in range(2):
        await published(client, 1, b"open")
    client = await back(client, gateway)
    await published(client, 1, b"open")
    assert payloads(tmp_path) == [b"open"] * 3


async def test_a_session_that_begins_anew_knows_no_message(tmp_path: Path) -> None:
    gateway = await started(tmp_path)
    client = await Client("client").connect(gateway.port)
    await published(client, 1, b"1")
    client.cut()
    client = await Client("client", clean_start=True).connect(gateway.port)
    await published(client, 1, b"1")
    assert payloads(tmp_path) == [b"1", b"1"]


async def test_what_has_arrived_for_certain_is_forgotten(tmp_path: Path) -> None:
    """A PUBREL answers a PUBREC, and the PUBCOMPs that went out before that have arrived."""
    async with running(tmp_path) as broker:
        client = await Client("client").connect(tcp_port(broker))
        for number in range(1, 5):
            await published(client, number, b"1")
        assert stored(tmp_path, "SELECT packet_identifier FROM released") == [(4,)]
        client.cut()
        again = await connected(broker, "client", clean_start=True)
        await again.publish("b")
        assert stored(tmp_path, "SELECT packet_identifier FROM released") == []


@pytest.mark.parametrize("is_killed", [False, True], ids=["cut", "killed"])
async def test_an_identifier_that_a_client_never_released_stands_for_another_message(
    tmp_path: Path, is_killed: bool
) -> None:
    """The identifiers of a client that starts anew begin at 1, and meet one that it has left: as in mosquitto, the
    content tells. After a kill it is not known, so the first PUBLISH counts as the message that was left."""
    gateway = await started(tmp_path)
    client = await Client("client").connect(gateway.port)
    client.send("a", b"1", qos=2, packet_identifier=1)
    await client.expect(Pubrec)
    if is_killed:
        await gateway.restart()
        client = await back(client, gateway)
        await published(client, 1, b"1")
    client = await back(client, gateway)
    await published(client, 1, b"2")
    assert payloads(tmp_path) == [b"1", b"2"]


@pytest.mark.parametrize("is_killed_first", [False, True], ids=["cut", "killed"])
async def test_a_message_that_is_released_after_a_restart_and_published_again_is_stored_once(
    tmp_path: Path, is_killed_first: bool
) -> None:
    gateway = await started(tmp_path)
    client = await Client("client").connect(gateway.port)
    client.send("a", b"1", qos=2, packet_identifier=1)
    await client.expect(Pubrec)
    for is_killed in (True, is_killed_first):
        if is_killed:
            await gateway.restart()
        client = await back(client, gateway)
        client.release(1)
        await client.expect(Pubcomp)
    client = await back(client, gateway)
    await published(client, 1, b"1")
    await published(client, 2, b"2")
    assert payloads(tmp_path) == [b"1", b"2"]


async def test_an_identifier_that_a_client_never_released_stands_for_another_message_also_where_one_was_not_stored(
    tmp_path: Path,
) -> None:
    """The first message is acknowledged over 3.1.1 and left out, as no rule allows it."""
    (tmp_path / "rules").write_text("allow * publish a\n")
    async with running(tmp_path / "store", acl=str(tmp_path / "rules")) as broker:
        for topic, payload in (("denied", b"1"), ("a", b"2")):
            options = {"protocol_level": MQTT_3_1_1, "clean_start": False}
            client = await Client("client", **options).connect(tcp_port(broker))
            client.send(topic, payload, qos=2, packet_identifier=1)
            await client.expect(Pubrec)
            client.cut()
    assert payloads(tmp_path / "store") == [b"2"]


@pytest.mark.parametrize("qos", [1, 2])
async def test_an_answer_to_what_was_sent_behind_a_pubcomp_proves_that_it_has_arrived(tmp_path: Path, qos: int) -> None:
    noted = "SELECT packet_identifier FROM released WHERE session = 'client'"
    async with running(tmp_path) as broker:
        client = await Client("client").connect(tcp_port(broker))
        await client.subscribe("down", options=qos)
        other = await Client("other").connect(tcp_port(broker))
        other.send("down", b"before", qos=qos)
        before = await client.expect(Publish)
        await published(client, 7, b"1")
        other.send("down", b"behind", qos=qos)
        behind = await client.expect(Publish)
        await acknowledge(client, before)
        writer = await Client("writer").connect(tcp_port(broker))
        await writer.publish("b")  # what is deferred is written with the next commit
        assert stored(tmp_path, noted) == [(7,)], "its PUBLISH went out before"
        await acknowledge(client, behind)
        await writer.publish("b")
        assert stored(tmp_path, noted) == []
