"""A device that waits for receipts: what it keeps, and what it sends again to a gateway with a new store."""

import re
from random import Random
from typing import Any

import pytest

from device.mqtt.receipts import RECEIPT_BYTES_MAX, STORE, TOPIC, Asked
from device.values import ConfigError
from flash_store.kept import KeepingLog
from tests.device.mqtt.virtual import VirtualBoard, VirtualDevice
from tests.support.model_broker import ModelBroker
from tools.lab.sim.nor import PowerCut
from wire import receipt as codec
from wire.codec import MQTT_5
from wire.codec.packets import Publish
from wire.codec.suback import Suback
from wire.codec.subscribe import Subscribe
from wire.connection.server import ServerConnection
from wire.errors import RemoteProtocolError
from wire.hops import STORE_PROPERTY
from wire.identity import IDENTITY_PROPERTY, decode_identity, find_user_property
from wire.packet_types import SUBSCRIBE
from wire.properties import REASON_STRING, USER_PROPERTY
from wire.reasons import NOT_AUTHORIZED, PACKET_IDENTIFIER_IN_USE, QUOTA_EXCEEDED, SUCCESS

TABLES = "3f0c9a1e"
EPOCH = f"{0xCAFE:08x}"
OWN = "hf/receipt/garage-1"
FIRST, SECOND = "00000001", "00000002"


class Gateway(ModelBroker):
    """A broker with a store that can be lost, and retained receipts."""

    def __init__(self, store: str | None = FIRST) -> None:
        super().__init__()
        self.retained: dict[str, bytes] = {}
        self.begin_store(store)

    def begin_store(self, store: str | None) -> None:
        """It has lost everything, and begins a new store."""
        self.forget()
        self.arrived.clear()
        self.announces = {} if store is None else {USER_PROPERTY: [(STORE_PROPERTY, store)]}

    def answer(self, connection: ServerConnection, event: object) -> None:
        super().answer(connection, event)
        for name, options in getattr(event, "filters", []) if type(event).__name__ == "Subscribe" else []:
            if name in self.retained:
                connection.publish(name, self.retained[name], qos=options & 3, retain=True)

    def settle(self, settled: str, batch: int = 1) -> None:
        self.retained = {
            OWN: f"hf1 {TABLES} {batch} {EPOCH}:{settled}".encode(),
            "hf/receipt": f"hf1 {TABLES} {batch} 1767225600000".encode(),
        }

    def numbers(self) -> list[int]:
        """The numbers of the messages that arrived, by their identities."""
        return [decode_identity(identity_of(one))[2] for one in self.arrived]


def identity_of(publish: Publish) -> str:
    identity = find_user_property(publish.properties, IDENTITY_PROPERTY)
    assert identity
    return identity


def start(board: VirtualBoard, gateway: ModelBroker, **change: Any) -> VirtualDevice:
    return VirtualDevice(board, gateway, **{"until": "receipt", **change})


def sent(device: VirtualDevice, count: int, size: int = 40) -> None:
    """Publishes messages, and has them acknowledged."""
    for number in range(count):
        device.publish("telemetry/garage", b"%d" % number + b"x" * size)
    assert device.run(lambda: not len(device.log), 3600)
    device.run(seconds=5)


def reconnect(device: VirtualDevice) -> None:
    device.port.cut()
    device.run(seconds=60)


def landed(device: VirtualDevice) -> int:
    assert isinstance(device.log, KeepingLog)
    return device.log.landed


def test_the_names_are_those_of_the_gateway_and_the_tables() -> None:
    assert (TOPIC, STORE) == (codec.LANDED_TOPIC, STORE_PROPERTY)
    assert RECEIPT_BYTES_MAX == codec.RECEIPT_BYTES_MAX


def test_what_it_asks_with_is_a_subscribe_and_what_it_reads_a_suback() -> None:
    asked = Asked(SUBSCRIBE, [TOPIC, OWN])
    asked.packet_identifier = 4711
    assert asked.encode(MQTT_5) == Subscribe(4711, [(TOPIC, 0), (OWN, 0)]).encode()
    for properties in ({}, {REASON_STRING: "not for you"}):
        body = Suback(4711, [0, 0x87], properties).encode()[2:]
        answer = Asked.decode(0, body, MQTT_5)
        assert (answer.TYPE, answer.packet_identifier, list(answer.reason_codes)) == (Suback.TYPE, 4711, [0, 0x87])
        for end in range(len(body) - 2):
            with pytest.raises(RemoteProtocolError):
                Asked.decode(0, body[:end], MQTT_5)


def test_all_that_is_not_settled_goes_again_to_a_gateway_with_a_new_store_in_order_and_once() -> None:
    board, gateway = VirtualBoard(), Gateway()
    device = start(board, gateway)
    sent(device, 100)
    gateway.settle("30,32-40")
    reconnect(device)
    assert (landed(device), gateway.numbers()) == (30, list(range(1, 101)))
    gateway.begin_store(SECOND)
    reconnect(device)
    assert gateway.numbers() == list(range(31, 101))
    assert {one.qos for one in gateway.arrived} == {1}
    reconnect(device)
    assert gateway.numbers() == list(range(31, 101))


def test_a_gateway_that_keeps_its_store_or_tells_of_none_gets_nothing_again() -> None:
    for store in (FIRST, None):
        board, gateway = VirtualBoard(), Gateway(store)
        device = start(board, gateway)
        sent(device, 20)
        reconnect(device)
        sent(start(board, gateway), 1)
        assert gateway.numbers() == list(range(1, 22))


def test_a_device_that_begins_to_wait_sends_nothing_of_before_again() -> None:
    board, gateway = VirtualBoard(), Gateway()
    sent(VirtualDevice(board, gateway), 20)
    sent(start(board, gateway), 5)
    gateway.begin_store(SECOND)
    sent(start(board, gateway), 1)
    assert sorted(gateway.numbers()) == list(range(21, 27))


def test_messages_under_a_former_name_do_not_go_again_under_the_new_one() -> None:
    board, gateway = VirtualBoard(), Gateway()
    sent(start(board, gateway), 20)
    sent(start(board, gateway, client_id="garage-2"), 5)
    gateway.begin_store(SECOND)
    sent(start(board, gateway, client_id="garage-2"), 1)
    assert sorted(gateway.numbers()) == list(range(21, 27))


def test_a_store_that_is_lost_again_while_messages_go_again_gets_them_all() -> None:
    board, gateway = VirtualBoard(), Gateway()
    device = start(board, gateway)
    gateway.cut = device.port.cut
    sent(device, 200)
    for store in (SECOND, "00000003"):
        gateway.begin_store(store)
        gateway.packets_left = 100
        reconnect(device) if store == SECOND else device.port.cut()
    gateway.packets_left = None
    device.run(seconds=600)
    assert set(gateway.numbers()) == set(range(1, 201))


def test_what_was_never_sent_goes_first() -> None:
    board, gateway = VirtualBoard(), Gateway()
    device = start(board, gateway)
    sent(device, 50)
    gateway.begin_store(SECOND)
    device.port.cut()
    gateway.is_down = True
    device.run(seconds=60)
    for _ in range(30):
        device.publish("telemetry/garage", b"new")
    gateway.is_down = False
    device.run(seconds=600)
    assert gateway.numbers() == [*range(51, 81), *range(1, 51)]


def test_a_full_flash_gives_up_the_oldest_acknowledged_and_never_refuses_a_message_for_them() -> None:
    board, gateway = VirtualBoard(), Gateway()
    device = start(board, gateway)
    for _ in range(10):
        sent(device, 100, 60)
    gateway.begin_store(SECOND)
    reconnect(device)
    numbers = gateway.numbers()
    assert numbers == list(range(numbers[0], 1001))
    assert 1 < numbers[0] < 700
    assert device.log.gaps() == []


def test_an_unacknowledged_message_stays_while_acknowledged_ones_fill_the_flash() -> None:
    board, gateway = VirtualBoard(), Gateway()
    gateway.refuses = lambda publish: QUOTA_EXCEEDED if publish.payload == b"stuck" else SUCCESS
    device = start(board, gateway)
    device.publish("telemetry/garage", b"stuck")
    for _ in range(1500):
        device.publish("telemetry/garage", b"x" * 60)
        assert device.run(lambda: len(device.log) == 1, 3600)
    assert next(device.log.messages())[4] == b"stuck"
    assert device.log.gaps() == []


def test_nothing_is_missing_whatever_flash_operation_a_power_cut_strikes(seed: int) -> None:
    board, gateway = VirtualBoard(seed=seed), Gateway()
    sent(start(board, gateway), 120)
    gateway.begin_store(SECOND)
    chance, cuts = Random(seed), 0
    before = board.flash.copy()
    for operation in range(1, 40):
        board.flash = before.copy()
        gateway.begin_store(SECOND)
        board.cut_power_at(operation, chance)
        try:
            start(board, gateway).run(seconds=300)
        except PowerCut:
            cuts += 1
        board.cut_power_at(None, chance)
        device = start(board, gateway)
        device.run(seconds=300)
        assert sorted(set(gateway.numbers())) == list(range(1, 121))
        assert not len(device.log)
    assert cuts > 3


def test_a_gateway_without_room_gets_it_all_later() -> None:
    board, gateway = VirtualBoard(), Gateway()
    device = start(board, gateway)
    sent(device, 40)
    gateway.begin_store(SECOND)
    left = 10

    def refuse(publish: Publish) -> int:
        nonlocal left
        left -= 1
        return QUOTA_EXCEEDED if left >= 0 and left % 2 else SUCCESS

    gateway.refuses = refuse
    reconnect(device)
    device.run(seconds=600)
    assert sorted(set(gateway.numbers())) == list(range(1, 41))
    assert not len(device.log)


@pytest.mark.parametrize("reason_code", [NOT_AUTHORIZED, PACKET_IDENTIFIER_IN_USE, QUOTA_EXCEEDED])
def test_a_gateway_that_takes_nothing_yet_gets_it_all_later(reason_code: int) -> None:
    board, gateway = VirtualBoard(), Gateway()
    device = start(board, gateway)
    sent(device, 40)
    gateway.begin_store(SECOND)
    gateway.refuses = lambda _publish: reason_code
    reconnect(device)
    assert gateway.numbers() == []
    assert len(gateway.publishes) < 40 + 60
    gateway.refuses = lambda _publish: SUCCESS
    device.run(seconds=600)
    assert sorted(gateway.numbers()) == list(range(1, 41))


def test_what_is_refused_goes_again_alone_and_with_pauses() -> None:
    board, gateway = VirtualBoard(), Gateway()
    device = start(board, gateway)
    sent(device, 40)
    gateway.begin_store(SECOND)
    gateway.refuses = lambda publish: QUOTA_EXCEEDED if publish.payload.startswith(b"7x") else SUCCESS
    before = len(gateway.publishes)
    device.port.cut()
    device.run(seconds=3600)
    assert len(gateway.publishes) - before < 40 + 3600
    assert sorted(gateway.numbers()) == [number for number in range(1, 41) if number != 8]
    gateway.refuses = lambda _publish: SUCCESS
    device.run(seconds=60)
    assert sorted(gateway.numbers()) == list(range(1, 41))


def test_a_message_that_a_gateway_refuses_while_it_takes_others_does_not_hold_these_up() -> None:
    board, gateway = VirtualBoard(), Gateway()
    device = start(board, gateway)
    sent(device, 150)
    gateway.begin_store(SECOND)
    gateway.refuses = lambda publish: NOT_AUTHORIZED if publish.payload.startswith(b"7x") else SUCCESS
    reconnect(device)
    assert gateway.numbers() == [number for number in range(1, 151) if number != 8]
    assert "1 messages do not go again: the gateway refuses them, and takes others" in board.lines


def test_a_store_of_many_sectors_is_gone_through_one_sector_a_turn_at_once() -> None:
    board, gateway = VirtualBoard(32), Gateway()
    device = start(board, gateway)
    for _ in range(5):
        sent(device, 200, 60)
    gateway.settle("1000")
    reconnect(device)
    gateway.begin_store(SECOND)
    log = device.log
    assert isinstance(log, KeepingLog)
    device.port.cut()
    assert device.run(lambda: log.again, 60)
    sectors, since_ms = [log.again], board.now_ms
    while log.again:
        last_ms = board.now_ms
        turn(device)
        sectors.append(log.again)
    assert sectors == [*range(sectors[0], sectors[0] + len(sectors) - 1), 0]
    assert len(sectors) > 20
    assert last_ms - since_ms < 1000
    assert gateway.numbers() == []


def test_fresh_messages_go_beside_those_that_go_again_and_hold_none_of_them_up() -> None:
    board, gateway = VirtualBoard(), Gateway()
    device = start(board, gateway)
    sent(device, 300)
    gateway.begin_store(SECOND)
    log = device.log
    assert isinstance(log, KeepingLog)
    device.port.cut()
    assert device.run(lambda: log.again, 60)
    for number in range(301, 601):
        device.publish("telemetry/garage", b"fresh")
        turn(device)
        turn(device)
        assert number in [decode_identity(identity_of(one))[2] for one in gateway.publishes[-16:]]
    assert not log.again
    assert set(gateway.numbers()) >= set(range(1, 601))


def test_a_message_that_stays_without_an_answer_does_not_hold_up_what_goes_again() -> None:
    board, gateway = VirtualBoard(), Gateway()
    device = start(board, gateway)
    sent(device, 200)
    gateway.begin_store(SECOND)
    gateway.completes = False
    device.publish("telemetry/garage", b"unanswered", 2)
    reconnect(device)
    assert gateway.numbers() == list(range(1, 201))
    assert len(device.log) == 1


def test_tables_that_were_made_anew_and_have_less_get_what_only_the_former_had() -> None:
    board, gateway = VirtualBoard(), Gateway()
    device = start(board, gateway)
    sent(device, 200)
    gateway.settle("190")
    reconnect(device)
    gateway.begin_store(SECOND)
    gateway.retained = {OWN: f"hf1 0000abcd 1 {EPOCH}:10".encode(), "hf/receipt": b"hf1 0000abcd 1 5"}
    device = start(board, gateway)
    device.run(seconds=60)
    assert landed(device) == 10
    assert sorted(set(gateway.numbers())) == list(range(11, 201))


def test_what_receipts_take_back_is_forgotten_over_a_restart_too_and_flash_is_not_worn_out_by_it() -> None:
    board, gateway = VirtualBoard(), Gateway()
    device = start(board, gateway)
    sent(device, 200)
    gateway.settle("190")
    reconnect(device)
    programmed = board.flash.bytes_programmed
    for batch in range(2, 1000, 2):
        tell(device, OWN, f"hf1 {TABLES} {batch} {EPOCH}:10".encode())
        tell(device, OWN, f"hf1 {TABLES} {batch + 1} {EPOCH}:190".encode())
    tell(device, OWN, f"hf1 {TABLES} 1000 {EPOCH}:10".encode())
    assert board.flash.bytes_programmed - programmed < 1000
    reconnect(device)
    tell(device, OWN, f"hf1 {TABLES} 1001 {EPOCH}:11".encode())
    gateway.retained = {}
    assert landed(start(board, gateway)) <= 11


@pytest.mark.parametrize("change", [{"until": "acknowledgement"}, {}])
def test_what_was_made_under_another_name_meanwhile_does_not_go_again_under_the_old_one(change: dict[str, str]) -> None:
    board, gateway = VirtualBoard(), Gateway()
    sent(start(board, gateway), 20)
    sent(start(board, Gateway(None), client_id="garage-2", **change), 5)
    sent(start(board, gateway), 5)
    gateway.begin_store(SECOND)
    sent(start(board, gateway), 1)
    assert sorted(gateway.numbers()) == list(range(26, 32))


def test_sectors_that_go_again_are_not_counted_as_messages() -> None:
    board, gateway = VirtualBoard(), Gateway()
    device = start(board, gateway)
    sent(device, 300)
    gateway.begin_store(SECOND)
    gateway.takes = False
    reconnect(device)
    log = device.log
    assert isinstance(log, KeepingLog)
    assert log.again
    assert (len(log), log.stats()["live"]) == (0, 0)


def test_commands_may_not_take_the_devices_own_receipt() -> None:
    for commands in ("hf/receipt", "+/+/garage-1", "hf/receipt/+"):
        with pytest.raises(ConfigError, match=f"commands is .{re.escape(commands)}., expected .* own hf/receipt"):
            start(VirtualBoard(), Gateway(), commands=commands)


@pytest.mark.parametrize(
    ("topic", "payload", "problem"),
    [
        (OWN, f"hf1 {TABLES} 7 {EPOCH}:21", "it claims message 21, and 20 is the last one"),
        (OWN, f"hf1 {TABLES} 7 {EPOCH}:4,6-30", "it claims message 30"),
        (OWN, f"hf1 {TABLES} 4 {EPOCH}:9", "it is of batch 4, and one of batch 5 came before"),
        ("hf/receipt/garage-2", f"hf1 {TABLES} 7 {EPOCH}:9", "it is of another origin"),
        (OWN, f"hf1 {TABLES} 7", "it is none, or cut short"),
        (OWN, f"hf1 {TABLES} 7 {EPOCH}:", "invalid"),
        (OWN, f"hf1 {TABLES} 7 {EPOCH}:9 abc", "it is none, or cut short"),
        (OWN, f"hf1 {TABLES} 7 {EPOCH}:9,8", "its numbers do not ascend"),
        (OWN, f"hf1 {TABLES} 07 {EPOCH}:9", "its numbers are not spelt as those of a receipt"),
        (OWN, f"hf1 {TABLES} -7 {EPOCH}:9", "its numbers are not spelt as those of a receipt"),
        (OWN, f"hf1 {TABLES} 7 {EPOCH}:9 ", "it is none, or cut short"),
        (OWN, f"hf1 {TABLES} {1 << 64} {EPOCH}:9", "it is none, or cut short"),
        (OWN, f"hf2 {TABLES} 7 {EPOCH}:9", "it is none, or cut short"),
        (OWN, f"hf1 {TABLES} 7 {EPOCH}:9" + " " * 1100, "expected 1024 at most"),
        (OWN, f"hf1 {TABLES} 7 {EPOCH}:9" + " " * 900, "it is none, or cut short"),
        (
            OWN,
            f"hf1 {TABLES} 7 {EPOCH}:1" + "".join(f",{number}" for number in range(3, 200, 2)),
            "more than 65 numbers",
        ),
        (OWN, b"\xff\xfe", "utf-8"),
    ],
)
def test_a_receipt_that_cannot_be_about_this_device_counts_for_nothing(
    topic: str, payload: str | bytes, problem: str
) -> None:
    board, gateway = VirtualBoard(), Gateway()
    gateway.settle("8", batch=5)
    device = start(board, gateway)
    sent(device, 20)
    reconnect(device)
    assert landed(device) == 8
    tell(device, topic, payload.encode() if isinstance(payload, str) else payload)
    assert landed(device) == 8
    assert any(f"a receipt on {topic} does not count" in line and problem in line for line in board.lines)


def test_a_receipt_counts_once_the_tables_are_those_that_speak_now() -> None:
    board, gateway = VirtualBoard(), Gateway()
    device = start(board, gateway)
    sent(device, 20)
    tell(device, OWN, f"hf1 {TABLES} 1 {EPOCH}:9".encode())
    assert landed(device) == 0
    tell(device, "hf/receipt", f"hf1 {TABLES} 1 5".encode())
    assert landed(device) == 9
    tell(device, OWN, f"hf1 0000abcd 1 {EPOCH}:12".encode())
    assert landed(device) == 9


def test_a_broker_that_refuses_the_receipts_is_named_and_gets_the_messages() -> None:
    board, gateway = VirtualBoard(), Gateway()
    gateway.grants = ["hf/receipt"]
    sent(start(board, gateway, commands="to/garage-1"), 3)
    assert gateway.numbers() == [1, 2, 3]
    assert [line for line in board.lines if "no receipts" in line] == [
        "no receipts: the broker refuses the subscription to hf/receipt/garage-1"
    ]


def turn(device: VirtualDevice) -> None:
    """One turn of the device's loop."""
    turns = iter((False, True))
    device.run(lambda: next(turns))


def tell(device: VirtualDevice, topic: str, payload: bytes) -> None:
    """The broker sends a receipt now."""
    device.port.tell(topic, payload)
    device.run(seconds=1)
