"""What MQTT 3.1.1 cannot refuse: a message that the access rules deny does not hold up those behind it."""

from pathlib import Path

import pytest

from tests.gateway.store.support import messages_in, stored
from tests.gateway.support import Client, connected, running, subscribed, tcp_port
from wire.codec.packets import MQTT_3_1_1, Puback, Pubcomp, Pubrec, Will

RULES = "allow * publish,subscribe open/#\n"
DENIED = "SELECT sum(messages) FROM dropped WHERE reason = 'rejected' AND publisher = 'sensor'"


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_is_denied_is_acknowledged_and_leaves_a_range_and_what_is_behind_it_arrives(
    tmp_path: Path, qos: int
) -> None:
    (tmp_path / "rules").write_text(RULES)
    async with running(tmp_path / "store", acl=str(tmp_path / "rules")) as broker:
        reader = await subscribed(broker, "reader", "open/#")
        sensor = await Client("sensor", protocol_level=MQTT_3_1_1).connect(tcp_port(broker))
        denied = sensor.send("closed/a", b"1", qos=qos)
        allowed = sensor.send("open/a", b"2", qos=qos)
        for packet_identifier in (denied, allowed):
            answer = await sensor.expect(Puback if qos == 1 else Pubrec)
            assert answer.packet_identifier == packet_identifier
            assert qos == 1 or packet_identifier == allowed or stored(tmp_path / "store", DENIED) == [(1,)]
        if qos == 2:
            sensor.release(denied or 0)
            assert (await sensor.expect(Pubcomp)).packet_identifier == denied
        assert (await reader.receive()).payload == b"2"
        assert stored(tmp_path / "store", DENIED) == [(1,)]
    assert [message.topic for _, message in messages_in(tmp_path / "store")] == ["open/a"]


async def test_a_denied_will_does_not_refuse_the_login_and_is_not_published(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text(RULES)
    async with running(tmp_path / "store", acl=str(tmp_path / "rules")) as broker:
        reader = await subscribed(broker, "reader", "open/#")
        will = Will("closed/a", b"gone", 1)
        sensor = await Client("sensor", protocol_level=MQTT_3_1_1, will=will).connect(tcp_port(broker))
        await sensor.publish("open/a", b"1")
        sensor.cut()
        assert (await reader.receive()).payload == b"1"
        other = await connected(broker, "other")
        await other.publish("open/a", b"a marker")
        assert (await reader.receive()).payload == b"a marker"
    assert stored(tmp_path / "store", DENIED) == [(1,)]
