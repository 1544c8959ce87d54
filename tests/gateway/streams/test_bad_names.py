"""Streams that are named wrongly, or that the gateway has not."""

from pathlib import Path
from typing import Any

import pytest

from gateway.config.load import load
from host.errors import ConfigError
from tests.gateway.streams.support import PLANT, WAYS, Way, client, naming, publish, subscribe
from tests.gateway.support import Client, running
from tools.cli.gateway.config import read_configuration
from wire import properties as p
from wire.codec.connect import Will
from wire.codec.packets import Connack, Disconnect, Puback, Pubrec, Suback

PREFIX = WAYS["writes a prefix"]
HEAD = 'name = "site"\nstore.path = "store"\n'
WRONG = {
    "is served nowhere": (Way("", "$SYS/STREAM/office/t"), "no stream 'office' is served here"),
    "is named by the property and served nowhere": (Way("", named="office"), "no stream 'office' is served here"),
    "has a name for another one": (Way("", "$SYS/STREAM/plant/t", named="office"), "'plant'"),
    "is in itself": (Way("", "$SYS/STREAM/plant/$SYS/STREAM/plant/t"), "cannot be in a stream"),
    "is in another one by the property": (Way("", "$SYS/STREAM/plant/t", named="$SYS/STREAM/plant"), "names"),
    "has a reserved name": (Way("", "$SYS/STREAM/any/t"), "'any' is reserved"),
    "has no name": (Way("", "$SYS/STREAM//t"), "a name of 1 to 128 bytes"),
    "has no topic": (Way("", "$SYS/STREAM/plant"), "$SYS/STREAM/NAME/TOPIC"),
    "has what gateways tell each other": (Way("", "$SYS/STREAM/plant/$holdfast/links"), "cannot be in a stream"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_message_is_refused_if_its_stream(tmp_path: Path, wrong: str) -> None:
    way, expected = WRONG[wrong]
    async with running(tmp_path, stream=[PLANT]) as broker:
        publisher = await client(broker, "publisher", way)
        for qos, kind in ((1, Puback), (2, Pubrec)):
            publisher.send(way.topic, b"", qos=qos, properties=naming(way))
            answer: Any = await publisher.expect(kind)
            assert answer.reason_code == 0x90
            assert expected in answer.properties[p.REASON_STRING]
        await publish(publisher, PREFIX, b"the next one is taken")


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_filter_is_refused_if_its_stream(tmp_path: Path, wrong: str) -> None:
    way, expected = WRONG[wrong]
    async with running(tmp_path, stream=[PLANT]) as broker:
        subscriber = await client(broker, "subscriber", way)
        subscriber.protocol.subscribe([(way.topic, 1)], naming(way))
        subscriber.flush()
        answer: Suback = await subscriber.expect(Suback)
        assert answer.reason_codes == [0x8F]
        assert expected in answer.properties[p.REASON_STRING]


@pytest.mark.parametrize("topic_filter", ["$SYS/STREAM/+/t", "$SYS/STREAM/#", "$SYS/STREAM/+"])
async def test_no_wildcard_stands_for_a_stream(tmp_path: Path, topic_filter: str) -> None:
    async with running(tmp_path, stream=[PLANT]) as broker:
        subscriber = await client(broker, "subscriber", PREFIX)
        assert await subscribe(subscriber, WAYS["writes a topic"], topic_filter, PREFIX.topic, "t") == [0x8F, 1, 1]
        publisher = await client(broker, "publisher", PREFIX)
        await publish(publisher, WAYS["writes a topic"], b"message")
        assert (await subscriber.receive()).topic == "t"


async def test_a_gateway_without_streams_has_none(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        one = await client(broker, "client", PREFIX)
        assert await subscribe(one, PREFIX) == [0x8F]
        one.send(PREFIX.topic, b"", qos=1)
        assert (await one.expect(Puback)).reason_code == 0x90


async def test_a_will_in_a_stream_that_is_served_nowhere_is_refused_with_its_connect(tmp_path: Path) -> None:
    async with running(tmp_path, stream=[PLANT]) as broker:
        dying = Client("dying", will=Will("$SYS/STREAM/office/t", b"gone", 1))
        await dying.open(broker.listeners.all[0].port)  # type: ignore[union-attr]
        connack: Connack = await dying.expect(Connack)
        assert connack.reason_code == 0x90
        assert "no stream 'office'" in connack.properties[p.REASON_STRING]


async def test_a_connect_that_names_a_stream_has_it_implied_or_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, stream=[PLANT]) as broker:
        port = broker.listeners.all[0].port  # type: ignore[union-attr]
        inside = await Client("inside", user_properties=[("hf-stream", "plant")]).connect(port)
        reader = await client(broker, "reader", PREFIX)
        await subscribe(reader, PREFIX)
        await inside.publish("t", b"message")
        assert (await reader.receive()).payload == b"message"
        outside = Client("outside", user_properties=[("hf-stream", "office")])
        await outside.open(port)
        assert "no stream 'office'" in (await outside.expect(Connack)).properties[p.REASON_STRING]


async def test_a_message_of_qos_0_to_a_stream_that_is_served_nowhere_ends_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path, stream=[PLANT]) as broker:
        publisher = await client(broker, "publisher", PREFIX)
        publisher.send("$SYS/STREAM/office/t", b"", qos=0)
        assert (await publisher.expect(Disconnect)).reason_code == 0x90


def test_a_stream_whose_folder_cannot_be_used_is_named_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "gateway.toml"
    path.write_text(HEAD + '[[stream]]\nname = "plant"\npath = "file"\n')
    with pytest.raises(ConfigError, match=rf"{path}:5: stream\[0\].path: .*file"):
        read_configuration(path)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('[[stream]]\nname = "any"', ":4: stream[0].name: 'any' is reserved"),
        ('[[stream]]\nname = "default"', ":4: stream[0].name: 'default' is reserved"),
        ('[[stream]]\nname = "a/b"', "stream[0].name: 'a/b': expected one level"),
        ('[[stream]]\nname = "$SYS"', "stream[0].name: '$SYS': expected one level"),
        ('[[stream]]\nname = "+"', "stream[0].name: '+': expected one level"),
        ('[[stream]]\nname = ""', "stream[0].name: expected a name of 1 to 128 bytes"),
        ('[[stream]]\nname = "a"\n[[stream]]\nname = "a"', ":6: stream[1].name: two streams are named 'a'"),
        ('[[stream]]\nname = "a"\npath = "store"', "stream[0].path: "),
        ('[[stream]]\nname = "a"\n[[stream]]\nname = "b"\npath = "store/streams/a"', "stream[1].path: "),
        (
            '[[stream]]\nname = "a"\nusers = ["u"]\n[[stream]]\nname = "b"\nusers = ["u"]',
            "stream[1].users: 'u' is a user of stream 'a' already",
        ),
        ('[[listener]]\nkind = "tcp"\nstream = "a"', "listener[0].stream: no stream is named 'a'"),
        ('[[topic]]\nfilter = "$SYS/STREAM/a/#"\nmax_messages = 1', "topic[0].filter: '$SYS/STREAM/a/#': no stream"),
    ],
)
def test_a_configuration_with_a_wrong_stream_names_file_and_key(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(HEAD + text)
    with pytest.raises(ConfigError) as found:
        load(path)
    assert str(path) in str(found.value)
    assert error in str(found.value)
