"""Messages that no client has subscribed to: MQTT 5 tells their publisher."""

from pathlib import Path

import pytest

from tests.gateway.support import connected, running, subscribed
from wire.codec.packets import MQTT_3_1_1, Puback, Pubcomp, Pubrec


async def test_an_acknowledgement_says_that_no_client_has_subscribed(tmp_path: Path) -> None:
    """A route to this gateway keeps its messages then: nothing here keeps a copy [section 3.4.2.1]."""
    async with running(tmp_path) as broker:
        publisher = await connected(broker, "publisher")
        await subscribed(broker, "reader", "wanted/#")
        for topic, reason_code in (("wanted/1", 0), ("other", 0x10)):
            publisher.send(topic)
            assert (await publisher.expect(Puback)).reason_code == reason_code
            packet_identifier = publisher.send(topic, qos=2)
            assert packet_identifier is not None
            assert (await publisher.expect(Pubrec)).reason_code == reason_code
            publisher.release(packet_identifier)
            assert (await publisher.expect(Pubcomp)).reason_code == 0


@pytest.mark.parametrize("qos", [1, 2])
async def test_many_messages_at_once_are_answered_each_as_its_topic_is_wanted(tmp_path: Path, qos: int) -> None:
    async with running(tmp_path) as broker:
        publisher = await connected(broker, "publisher")
        await subscribed(broker, "reader", "wanted")
        for topics in (["wanted"] * 5, ["other"] * 5, ["wanted", "other"] * 5):
            for _ in range(2):  # the second time on the fast path
                sent = {publisher.protocol.publish(topic, b"", qos=qos): topic for topic in topics}
                publisher.flush()
                for _ in topics:
                    answer = await publisher.expect(Puback if qos == 1 else Pubrec)
                    assert answer.reason_code == (0 if sent[answer.packet_identifier] == "wanted" else 0x10)
                for packet_identifier in sent if qos == 2 else ():
                    assert packet_identifier is not None
                    publisher.release(packet_identifier)
                    await publisher.expect(Pubcomp)


async def test_a_client_of_mqtt_3_1_1_is_not_told(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        publisher = await connected(broker, "publisher", protocol_level=MQTT_3_1_1)
        publisher.send("other")
        assert (await publisher.expect(Puback)).reason_code == 0
