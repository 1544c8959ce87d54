"""What clients of one stream can do to those of another, and to the gateway: nothing."""

from pathlib import Path

import pytest

from gateway.auth.accounts import make_account, save_account
from gateway.broker import Broker
from gateway.config.streams import StreamConfig
from gateway.loop.pace import Paces
from tests.gateway.streams.support import PLANT
from tests.gateway.support import Client, running, subscribed, tcp_port, user_property
from wire import properties as p
from wire.codec.packets import Connack, Puback, Suback
from wire.hops import HOPS_PROPERTY, encode_hop
from wire.identity import IDENTITY_PROPERTY, RECEIVE, RECEIVED_PROPERTY, encode_identity
from wire.reasons import NOT_AUTHORIZED
from wire.route_numbers import VIA_PROPERTY, encode_via

OFFICE = StreamConfig("office")
RULES = """\
allow alice publish,subscribe #
allow bob publish,subscribe shared/#
allow bob publish,subscribe $SYS/STREAM/office/#
"""


def accounts(folder: Path) -> dict[str, str]:
    """Two users with rules; returns the keys of the configuration."""
    for name in ("alice", "bob"):
        save_account(folder / "accounts", make_account(name, b"pencil", with_scram=False))
    (folder / "rules").write_text(RULES)
    return {"accounts": str(folder / "accounts"), "acl": str(folder / "rules")}


async def user(broker: Broker, name: str, client_id: str, stream: str | None = None, **keys: object) -> Client:
    """A client of a user that asks for a stream in its CONNECT, whose answer is still to come."""
    named = [] if stream is None else [("hf-stream", stream)]
    client = Client(client_id, username=name, password=b"pencil", user_properties=named, **keys)
    await client.open(tcp_port(broker))
    return client


@pytest.mark.parametrize("share", ["$share", "$share/g", "$share/g/", "$share/g/t", "$share/+/t"])
async def test_a_share_name_behind_the_streams_name_is_refused(tmp_path: Path, share: str) -> None:
    async with running(tmp_path, stream=[PLANT]) as broker:
        client = await Client("client").connect(tcp_port(broker))
        for front in ("$SYS/STREAM/default", "$SYS/STREAM/plant", "$share/a/$SYS/STREAM/plant"):
            topic_filter = f"{front}/{share}"
            client.protocol.subscribe([(topic_filter, 1)])
            client.flush()
            answer = await client.expect(Suback)
            assert answer.reason_codes == [0x8F]
        assert not [session for stream in broker.streams for session in stream.sessions.all() if session.shared]


async def test_a_client_identifier_of_another_user_in_another_stream_gives_no_right_to_its_identities(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "store", stream=[OFFICE], **accounts(tmp_path)) as broker:
        device = await user(broker, "alice", "sensor-1")
        assert (await device.expect(Connack)).reason_code == 0
        reader = await user(broker, "alice", "reader", wishes=(RECEIVE,))
        await reader.expect(Connack)
        await reader.subscribe("shared/#")
        twin = await user(broker, "bob", "sensor-1", "office")
        assert (await twin.expect(Connack)).reason_code == 0
        identity = {p.USER_PROPERTY: [(IDENTITY_PROPERTY, encode_identity("sensor-1", 1, 7))]}
        await twin.publish("$SYS/STREAM/default/shared/x", b"", properties=identity)
        assert str(user_property(await reader.receive(), IDENTITY_PROPERTY)).endswith("/test-gateway")


async def test_a_user_without_a_rule_for_a_stream_makes_no_session_there(tmp_path: Path) -> None:
    async with running(tmp_path / "store", stream=[PLANT, OFFICE], **accounts(tmp_path)) as broker:
        refused = await user(broker, "bob", "client", "plant", session_expiry_s=600)
        assert (await refused.expect(Connack)).reason_code == NOT_AUTHORIZED
        client = await user(broker, "bob", "client", session_expiry_s=600)
        assert (await client.expect(Connack)).reason_code == 0
        client.send("$SYS/STREAM/plant/t", qos=1)
        assert (await client.expect(Puback)).reason_code == NOT_AUTHORIZED
        client.protocol.subscribe([("t", 1)], {p.USER_PROPERTY: [("hf-stream", "plant")]})
        client.flush()
        assert (await client.expect(Suback)).reason_codes == [NOT_AUTHORIZED]
        assert [len(stream.sessions.all()) for stream in broker.streams] == [1, 0, 0]
        await client.publish("$SYS/STREAM/office/t")
        assert [len(stream.sessions.all()) for stream in broker.streams] == [1, 0, 1]


@pytest.mark.parametrize("topic", ["t", "$SYS/STREAM/plant/t", "$SYS/STREAM/none/t"])
async def test_packets_that_name_a_stream_count_for_the_rate_of_their_owner_as_others_do(
    tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = 0

    def note(_: Paces, owner: str, packets: int) -> None:
        nonlocal counted
        counted += packets

    monkeypatch.setattr(Paces, "note", note)
    async with running(tmp_path, stream=[PLANT]) as broker:
        client = await Client("client").connect(tcp_port(broker))
        client.send(topic, qos=1)
        await client.expect(Puback)
        await client.subscribe(topic)
        await client.unsubscribe(topic)
        await client.ping()
        assert counted == 4


async def test_the_fast_path_forgets_an_origin_that_has_become_the_name_of_a_gateway(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        reader = await subscribed(broker, "reader", "a", wishes=(RECEIVE,))
        client = await Client("c").connect(tcp_port(broker))

        def handed_on(number: int) -> dict[int, object]:
            via = encode_via(1, [(number, number)], "c", "r")
            identity = encode_identity("c", 1, number)
            pairs = [(HOPS_PROPERTY, encode_hop(1)), (IDENTITY_PROPERTY, identity), (RECEIVED_PROPERTY, "1/c")]
            return {p.USER_PROPERTY: [*pairs, (VIA_PROPERTY, via)]}

        for number in range(1, 4):
            await client.publish("a", properties=handed_on(number))
            assert user_property(await reader.receive(), IDENTITY_PROPERTY) == encode_identity("c", 1, number)
        broker.network.links.gateways.add("c")
        await client.publish("a", properties=handed_on(9))
        packet = await reader.receive()
        assert str(user_property(packet, IDENTITY_PROPERTY)).endswith("/test-gateway")
        assert user_property(packet, VIA_PROPERTY) is None
