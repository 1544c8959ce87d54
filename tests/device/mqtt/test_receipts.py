"""A device that waits for receipts: what it keeps, and what it sends again to a gateway with a new store."""

from random import Random
from typing import Any

import pytest

from device.mqtt.receipts import RECEIPT_BYTES_MAX, STORE, TOPIC
from flash_store.kept import KeepingLog
from tests.device.mqtt.virtual import VirtualBoard, VirtualDevice
from tests.support.model_broker import ModelBroker
from tools.lab.sim.nor import PowerCut
from wire import receipt as codec
from wire.codec.packets import Publish
from wire.connection.server import ServerConnection
from wire.hops import STORE_PROPERTY
from wire.identity import IDENTITY_PROPERTY, decode_identity, find_user_property
from wire.properties import USER_PROPERTY
from wire.reasons import QUOTA_EXCEEDED, SUCCESS

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
        found = [find_user_property(one.properties, IDENTITY_PROPERTY) for one in self.arrived]
        return [decode_identity(one)[2] for one in found if one]


def start(board: VirtualBoard, gateway: ModelBroker, **change: Any) -> VirtualDevice:
    return VirtualDevice(board, gateway, until="receipt", **change)


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


@pytest.mark.parametrize(
    ("topic", "payload", "problem"),
    [
        (OWN, f"hf1 {TABLES} 7 {EPOCH}:21", "it claims message 21, and 20 is the last one"),
        (OWN, f"hf1 {TABLES} 7 {EPOCH}:4,6-30", "it claims message 30"),
        (OWN, f"hf1 {TABLES} 4 {EPOCH}:9", "it is of batch 4, and one of batch 5 came before"),
        ("hf/receipt/garage-2", f"hf1 {TABLES} 7 {EPOCH}:9", "it is of another origin"),
        (OWN, f"hf1 {TABLES} 7", "it is none, or cut short"),
        (OWN, f"hf1 {TABLES} 7 {EPOCH}:", "invalid"),
        (OWN, f"hf1 {TABLES} 7 {EPOCH}:9 abc", "its signature is cut short"),
        (OWN, f"hf1 {TABLES} 7 {EPOCH}:9,8", "its numbers do not ascend"),
        (OWN, f"hf1 {TABLES} 07 {EPOCH}:9", "07 is no number"),
        (OWN, f"hf2 {TABLES} 7 {EPOCH}:9", "it is none, or cut short"),
        (OWN, f"hf1 {TABLES} 7 {EPOCH}:9" + " " * 1100, "it is none, or cut short"),
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
    gateway.grants = []
    sent(start(board, gateway, commands="to/garage-1"), 3)
    assert gateway.numbers() == [1, 2, 3]
    assert "no receipts: the broker refuses the subscription" in board.lines


def tell(device: VirtualDevice, topic: str, payload: bytes) -> None:
    """The broker sends a receipt now."""
    device.port.tell(topic, payload)
    device.run(seconds=1)
