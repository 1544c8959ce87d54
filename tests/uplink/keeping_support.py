"""A clock for routes that keep, and the job behind a scripted broker: it has what the broker got, and its receipts come
down."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tests.support.scripted_broker import ScriptedBroker
from tests.uplink.support import until
from uplink.queue.keeping import Keeping
from wire.codec.packets import Publish
from wire.identity import decode_identity
from wire.properties import USER_PROPERTY
from wire.receipt import LANDED_TOPIC, LandedUpTo, Receipt, Settled, encode_landed, encode_receipt, receipt_topic
from wire.route_numbers import STATEMENT_TOPICS, decode_statement
from wire.runs import runs_of

KEEPS: dict[str, Any] = {"until": "receipt", "resend_after_s": 100}


class Clock:
    """Seconds that pass as a test says."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Job:
    """Tells gateways what is in the tables: all that the broker got, but for what a test has lost."""

    def __init__(self, central: ScriptedBroker) -> None:
        self.central = central
        self._batch = 0

    def received(self) -> list[Publish]:
        """What the broker got, statements too."""
        return [packet for connection in self.central.publishes for packet in connection]

    def count(self, number: int) -> int:
        """How often the broker got a message of a device."""
        return [one.payload for one in self.received()].count(b"%d" % number)

    async def settle(self, *but: int, told: Iterable[Keeping] = ()) -> None:
        """Receipts say that all is settled that the broker got but for these messages, and what statements name as left
        out; ``told`` have heard it then.
        """
        lost, told = [b"%d" % number for number in but], list(told)
        settled: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        for one in self.received():
            if one.topic.startswith(STATEMENT_TOPICS):
                for origin, epoch, runs in decode_statement(bytes(one.payload)).left_out:
                    settled[origin][epoch].update(seq for first, last in runs for seq in range(first, last + 1))
            if one.payload not in lost:
                origin, epoch, seq = decode_identity(dict(one.properties[USER_PROPERTY])["hf-id"])
                settled[origin][epoch].add(seq)
        for origin, epochs in settled.items():
            await self.give(origin, [_settled(epoch, seqs) for epoch, seqs in epochs.items()], told=told)

    async def give(self, origin: str, epochs: list[Settled], *, told: Iterable[Keeping] = ()) -> None:
        """A receipt comes down."""
        told = list(told)
        self._batch += 1
        receipt = encode_receipt(Receipt("0000abcd", self._batch, epochs))
        self.central.command(Publish(receipt_topic(origin), receipt, 1, True, False, 1000 + self._batch))
        await until(lambda: 1000 + self._batch in self.central.pubacks)
        last = epochs[0].runs[-1][1] if epochs[0].runs else epochs[0].high
        await until(lambda: all(one.settled_up_to(origin, epochs[0].epoch, last) >= last for one in told))

    async def give_landed(self) -> None:
        """The receipt for all that was landed comes down."""
        self._batch += 1
        landed = encode_landed(LandedUpTo("0000abcd", self._batch, 0))
        self.central.command(Publish(LANDED_TOPIC, landed, 1, True, False, 1000 + self._batch))
        await until(lambda: 1000 + self._batch in self.central.pubacks)


def _settled(epoch: int, seqs: set[int]) -> Settled:
    runs = runs_of(sorted(seqs))
    return Settled(epoch, runs.pop(0)[1] if runs[0][0] == 1 else 0, runs)
