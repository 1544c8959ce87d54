"""The clients whose readings are counted: what each sends, and what it promises about it."""

import time
from collections.abc import Iterable
from typing import NamedTuple

from tools.lab.torture.publisher import EPOCH, Publisher
from wire.bulk.batch_encoder import ColumnBatchEncoder
from wire.bulk.column_batch import CONTENT_TYPE as BATCH
from wire.properties import CONTENT_TYPE
from wire.reasons import NO_MATCHING_SUBSCRIBERS

NORTH, SOUTH, CENTRAL = "north", "south", "central"
SENML = "application/senml+json"
LIMITED = "limited"
MESSAGES_IN_BATCH = 10


class Kind(NamedTuple):
    """A kind of sender.

    name: of the sender, and the device of its readings.
    share: of all readings, in percent.
    broker: to which it connects: a gateway, or the central broker.
    qos: of its messages.
    records: readings in one of its messages.
    has_identity: whether it numbers its messages by itself. Without that, a message that it sends again at QoS 1 is a
        new one.
    is_limited: whether its messages go over a route that drops old ones.
    is_batched: whether it puts many messages in a column batch.
    """

    name: str
    share: int
    broker: str
    qos: int
    records: int
    has_identity: bool = True
    is_limited: bool = False
    is_batched: bool = False


KINDS = (
    Kind("north-1", 20, NORTH, 1, 40),
    Kind("north-stock", 15, NORTH, 2, 30, has_identity=False),
    Kind("north-repeats", 5, NORTH, 1, 20, has_identity=False),
    Kind("south-2", 20, SOUTH, 2, 50),
    Kind("south-stock", 15, SOUTH, 2, 30, has_identity=False),
    Kind("south-limited", 5, SOUTH, 1, 20, is_limited=True),
    Kind("central-batch", 15, CENTRAL, 1, 20, is_batched=True),
    Kind("central-stock", 5, CENTRAL, 1, 20, has_identity=False),
)
"""The publishers. The sensors of devices come on top of them."""


class Sender(Publisher):
    """Publishes SenML. The reading at `record` of message n has the value (n - 1) * records + record + 1, so that each
    value is there once."""

    def __init__(self, kind: Kind, port: int, readings: int) -> None:
        per_packet = kind.records * (MESSAGES_IN_BATCH if kind.is_batched else 1)
        super().__init__(kind.name, port, kind.qos, max(1, readings // per_packet))
        self.kind = kind
        self._started_s = int(time.time())

    @property
    def topic(self) -> str:
        return f"{LIMITED if self.kind.is_limited else 'telemetry'}/{self.name}"

    @property
    def messages_a_packet(self) -> int:
        return MESSAGES_IN_BATCH if self.kind.is_batched else 1

    def payload(self, number: int) -> bytes:
        if not self.kind.is_batched:
            return self._senml(number)
        batch = ColumnBatchEncoder()
        block = b"\x03" + len(SENML).to_bytes(2, "big") + SENML.encode()
        received_ms = (self._started_s + number) * 1000
        for one in self.numbers([number]):
            batch.add(self.topic, self._senml(one), 1, False, block, self.name, EPOCH, one, received_ms, self.name)
        return batch.encode()

    def properties(self, number: int) -> dict[int, object]:
        properties = super().properties(number) if self.kind.has_identity and not self.kind.is_batched else {}
        return {**properties, CONTENT_TYPE: BATCH if self.kind.is_batched else SENML}

    def is_refused(self, reason_code: int) -> bool:
        # mosquitto 2.0.11 has no shared subscription after a restart until a member connects: it keeps no message then.
        return super().is_refused(reason_code) or reason_code == NO_MATCHING_SUBSCRIBERS

    def numbers(self, packets: Iterable[int]) -> list[int]:
        """Returns the numbers of the messages in packets."""
        size = self.messages_a_packet
        return [(packet - 1) * size + place for packet in packets for place in range(1, size + 1)]

    def _senml(self, number: int) -> bytes:
        first = (number - 1) * self.kind.records + 1
        head = f'[{{"bn":"{self.name}:","bt":{self._started_s + number % 3600},"n":"count","v":{first}}}'
        rest = "".join(f',{{"n":"count","v":{first + place}}}' for place in range(1, self.kind.records))
        return f"{head}{rest}]".encode()
