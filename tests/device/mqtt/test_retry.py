"""A broker that answers late or never, in virtual time: what goes out again, when, and that it is no flood."""

import itertools

import pytest

from tests.device.mqtt.publishing import fill_heap
from tests.device.mqtt.virtual import VirtualBoard, VirtualDevice
from tests.support.scripted_broker import ScriptedBroker, silent
from wire.codec import MQTT_3_1_1
from wire.codec.decoder import PacketDecoder
from wire.codec.packets import Publish, Pubrel
from wire.codec.requests import TO_SERVER
from wire.packet_types import CONNECT

TIMES_S = [20, 60, 140, 300, 620, 940, 1260]  # after 20 s, 40 s … and then every 320 s


def written(device: VirtualDevice, kind: type[Publish] | type[Pubrel]) -> list[tuple[float, int, bool]]:
    """When each PUBLISH or PUBREL went out over MQTT 3.1.1, its packet identifier and whether it had DUP."""
    found = []
    decoder = PacketDecoder(TO_SERVER, level=MQTT_3_1_1)
    for now_ms, data in device.port.written:
        decoder.feed(data)
        while (packet := decoder.next_packet()) is not None:
            if isinstance(packet, kind):
                assert packet.packet_identifier is not None
                found.append((now_ms / 1000, packet.packet_identifier, getattr(packet, "dup", False)))
    return found


def publish_three(device: VirtualDevice, qos: int) -> list[int]:
    return [device.publish("doors/front", b"%d" % number, qos) + 1 for number in range(3)]


@pytest.mark.parametrize("qos", [1, 2])
def test_over_3_1_1_what_is_not_acknowledged_goes_out_again_in_order_and_less_and_less_often(qos: int) -> None:
    broker = ScriptedBroker(puback=silent)
    device = VirtualDevice(VirtualBoard(), broker, mqtt_version="3.1.1")
    identifiers = publish_three(device, qos)
    device.run(seconds=TIMES_S[-1] + 1)
    expected = [(0.0, identifier, False) for identifier in identifiers]
    expected += [(float(at_s), identifier, True) for at_s in TIMES_S for identifier in identifiers]
    assert written(device, Publish) == expected
    assert len(broker.connects) == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_over_3_1_1_what_the_heap_has_no_room_to_repeat_goes_out_the_next_time(
    qos: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = VirtualBoard()
    device = VirtualDevice(board, ScriptedBroker(puback=silent), mqtt_version="3.1.1")
    identifiers = publish_three(device, qos)
    device.run(seconds=TIMES_S[0] - 1)
    fill_heap(monkeypatch, 0)
    device.run(seconds=2)
    monkeypatch.undo()
    device.run(seconds=TIMES_S[1])
    assert [at_s for at_s, identifier, _ in written(device, Publish) if identifier == identifiers[0]] == [0, TIMES_S[1]]
    assert not any("refused" in line for line in board.lines)


def test_over_3_1_1_a_pubrel_is_repeated_until_its_pubcomp_and_never_has_dup() -> None:
    device = VirtualDevice(VirtualBoard(), ScriptedBroker(pubcomp=False), mqtt_version="3.1.1")
    identifiers = publish_three(device, 2)
    device.run(seconds=TIMES_S[-1] + 1)
    expected = [(float(at_s), identifier, False) for at_s in [0, *TIMES_S] for identifier in identifiers]
    assert written(device, Pubrel) == expected
    assert len(written(device, Publish)) == 3
    assert all(data[0] == 0x62 for _, data in device.port.written if data[0] >> 4 == 6)


def test_over_5_nothing_is_repeated_but_over_a_new_connection() -> None:
    board = VirtualBoard()
    broker = ScriptedBroker(puback=silent, session_present=True)
    device = VirtualDevice(board, broker, retry_interval_ms=20_000)
    identifiers = publish_three(device, 1)
    device.run(seconds=TIMES_S[-1] + 60)
    for connection, publishes in enumerate(broker.publishes):
        assert [publish.packet_identifier for publish in publishes] == identifiers
        assert [publish.dup for publish in publishes] == [connection > 0] * 3
    connects_s = [now_ms / 1000 for now_ms, data in device.port.written if data[0] >> 4 == CONNECT]
    waits_s = [later - earlier for earlier, later in itertools.pairwise(connects_s)]
    assert waits_s == [pytest.approx(wait_s, abs=1) for wait_s in (20, 40, 80, 160, 320, 320, 320)]


def test_over_5_the_first_answer_makes_the_wait_short_again() -> None:
    broker = ScriptedBroker(puback=silent, session_present=True)
    device = VirtualDevice(VirtualBoard(), broker, retry_interval_ms=20_000)
    publish_three(device, 1)
    device.run(lambda: len(broker.connects) == 4)
    broker.puback = lambda _publish: 0
    device.port.cut()
    device.run(lambda: not len(device.log))
    broker.puback = silent
    device.port.cut()
    device.run(lambda: len(broker.connects) == 6)
    publish_three(device, 1)
    asked_ms = device.uptime.now_ms()
    device.run(lambda: len(broker.connects) == 7)
    assert device.uptime.now_ms() - asked_ms < 21_000


def test_over_5_a_broker_may_take_its_time_where_nothing_else_is_said() -> None:
    broker = ScriptedBroker(puback=silent)
    device = VirtualDevice(VirtualBoard(), broker)
    publish_three(device, 1)
    device.run(seconds=86_400)
    assert [len(publishes) for publishes in broker.publishes] == [3]
