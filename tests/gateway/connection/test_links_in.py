"""What comes over a link: a message that came before is acknowledged when that is durable, and not stored again."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from gateway.broker import Broker
from gateway.connection import client as serving
from gateway.connection.intake.publish_in import Intake
from gateway.connection.services import Services
from tests.gateway.connection.test_custody import commits_held_up
from tests.gateway.store.support import disk_full, messages_in, stored
from tests.gateway.support import Client, connected, running, subscribed, tcp_port, until
from wire.codec.packets import Disconnect, Puback, Pubcomp, Pubrec
from wire.identity import IDENTITY_PROPERTY
from wire.properties import USER_PROPERTY
from wire.reasons import NO_MATCHING_SUBSCRIBERS, SUCCESS

MANY = 100


@pytest.fixture(autouse=True)
def links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client is another gateway."""
    monkeypatch.setattr(serving, "Intake", linked)


def linked(services: Services, *about: Any, **options: Any) -> Intake:
    """What takes the messages of another gateway that was told every filter."""
    copies = services.copies.of("link")
    copies.told = lambda topic: [topic]
    return Intake(services, *about, **{**options, "copies": copies})


def rules(folder: Path) -> str:
    """Every client may bring every identity."""
    path = folder / "rules"
    path.write_text("allow * publish,subscribe #\nallow * identify *\n")
    return str(path)


def identified(seq: int, origin: str = "device") -> dict[str, Any]:
    return {"properties": {USER_PROPERTY: [(IDENTITY_PROPERTY, f"00000007/{seq}/{origin}")]}}


def send_all(client: Client, seqs: list[int], qos: int = 1, **options: Any) -> list[int]:
    """Sends messages in one write; returns their packet identifiers."""
    sent = [client.protocol.publish("a", b"%d" % seq, qos=qos, **identified(seq), **options) for seq in seqs]
    client.flush()
    return [identifier for identifier in sent if identifier is not None]


async def answers(client: Client, kind: type[Puback | Pubrec | Pubcomp], count: int) -> list[int]:
    found = [await client.expect(kind) for _ in range(count)]
    assert {answer.reason_code for answer in found} <= {SUCCESS}
    return [answer.packet_identifier for answer in found]


def seqs_in(folder: Path) -> list[int]:
    return [message.seq for _, message in messages_in(folder) if message.origin == "device"]


async def two_links(broker: Broker) -> tuple[Client, Client]:
    """Two links, and a subscriber that acknowledges nothing, so that all stays in the log."""
    await subscribed(broker, "keeper", "#")
    return await connected(broker, "link-a"), await connected(broker, "link-b")


@pytest.mark.parametrize("way", ["in one process", "over a restart"])
async def test_what_came_over_one_link_is_not_stored_when_it_comes_over_another(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "store"
    async with running(folder, acl=rules(tmp_path)) as broker:
        link, other = await two_links(broker)
        sent = send_all(link, [1, 2, 3])
        assert await answers(link, Puback, 3) == sent
        if way == "in one process":
            sent = send_all(other, [1, 2, 3])
            assert await answers(other, Puback, 3) == sent
            assert broker.counters.messages_duplicate == 3
    if way == "over a restart":
        async with running(folder, acl=rules(tmp_path)) as broker:
            other = await connected(broker, "link-b")
            sent = send_all(other, [3, 4, 1])
            assert await answers(other, Puback, 3) == sent
            assert broker.counters.messages_duplicate == 2
    assert seqs_in(folder) == [1, 2, 3] + [4] * (way == "over a restart")


async def test_a_message_of_qos_2_that_came_before_goes_through_and_is_not_stored(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    async with running(folder, acl=rules(tmp_path)) as broker:
        link, other = await two_links(broker)
        for client in (link, other):
            sent = send_all(client, [1, 2], 2)
            assert await answers(client, Pubrec, 2) == sent
            for identifier in sent:
                client.release(identifier)
            assert await answers(client, Pubcomp, 2) == sent
        assert broker.counters.messages_duplicate == 2
    assert seqs_in(folder) == [1, 2]
    assert stored(folder, "SELECT * FROM incoming") == []


def conflicts(broker: Broker) -> tuple[int, int]:
    return broker.counters.messages_conflict, broker.counters.messages_duplicate


@pytest.mark.parametrize("way", ["in one process", "over a restart"])
@pytest.mark.parametrize("qos", [1, 2])
async def test_another_message_with_an_identity_that_was_used_is_stored_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str, qos: int
) -> None:
    """A device's flash was restored from a copy: it gives its numbers to new messages."""
    folder = tmp_path / "store"
    kind = Puback if qos == 1 else Pubrec
    seqs = list(range(1, MANY))
    async with running(folder, acl=rules(tmp_path)) as broker:
        link, other = await two_links(broker)
        send_all(link, seqs, qos)
        await answers(link, kind, len(seqs))
        if way == "in one process":
            await send_others(broker, other, seqs, qos)
    if way == "over a restart":
        async with running(folder, acl=rules(tmp_path)) as broker:
            await send_others(broker, await connected(broker, "link-b"), seqs, qos)
    found = [(message.topic, message.payload) for _, message in messages_in(folder) if message.origin == "device"]
    assert found[len(seqs) :] == [("a", b"another"), ("other", b"1"), *[("a", b"%d" % -seq) for seq in seqs[1:]]]
    told = [record.getMessage() for record in caplog.records if "conflict" in record.getMessage()]
    assert told == ["conflict: another message came before with the identity 00000007/1"]


async def send_others(broker: Broker, link: Client, seqs: list[int], qos: int) -> None:
    """Sends other payloads, and an equal one on another topic, with numbers that were used; the last ones twice."""
    kind = Puback if qos == 1 else Pubrec
    for topic, payload in (("a", b"another"), ("other", b"1")):
        link.protocol.publish(topic, payload, qos=qos, **identified(1))
        link.flush()
        await answers(link, kind, 1)
    assert conflicts(broker) == (2, 0)
    for _ in range(2):
        for seq in seqs[1:]:
            link.protocol.publish("a", b"%d" % -seq, qos=qos, **identified(seq))
        link.flush()
        await answers(link, kind, len(seqs) - 1)
    assert conflicts(broker) == (len(seqs) + 1, len(seqs) - 1)


async def test_another_message_of_qos_0_with_an_identity_that_was_used_is_handed_on(tmp_path: Path) -> None:
    async with running(tmp_path / "store", acl=rules(tmp_path)) as broker:
        link, other = await two_links(broker)
        reader = await subscribed(broker, "reader", "a")
        for client, payload in ((link, b"1"), (other, b"2"), (link, b"2")):
            client.protocol.publish("a", payload, qos=0, **identified(1))
            client.flush()
            await client.ping()
        await other.publish("a", b"marker")
        assert [(await reader.receive()).payload for _ in range(3)] == [b"1", b"2", b"marker"]
        assert conflicts(broker) == (1, 1)


async def test_another_retained_message_with_an_identity_that_was_used_takes_the_place_of_the_first(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "store", acl=rules(tmp_path)) as broker:
        link, other = await two_links(broker)
        for client, payload in ((link, b"1"), (other, b"2"), (link, b"2")):
            await client.publish("a", payload, retain=True, **identified(1))
        reader = await subscribed(broker, "reader", "a")
        assert (await reader.receive()).payload == b"2"
        assert conflicts(broker) == (1, 1)


@pytest.mark.parametrize("qos", [1, 2])
async def test_of_many_at_once_the_new_ones_are_stored_in_order_and_all_are_answered_in_order(
    tmp_path: Path, seed: int, qos: int
) -> None:
    dice, folder = random.Random(seed), tmp_path / "store"
    kind = Puback if qos == 1 else Pubrec
    async with running(folder, acl=rules(tmp_path)) as broker:
        link, other = await two_links(broker)
        first = [1, *sorted(dice.sample(range(2, MANY), MANY // 2))]  # the first one takes no fast path
        sent = send_all(link, first, qos)
        assert await answers(link, kind, len(first)) == sent
        for client, seqs in ((other, [*range(1, MANY), 5]), (link, [*range(1, MANY)])):
            sent = send_all(client, seqs, qos)
            assert await answers(client, kind, len(seqs)) == sent
        assert broker.counters.messages_duplicate == len(first) + 1 + MANY - 1
    assert seqs_in(folder) == [*first, *(seq for seq in range(1, MANY) if seq not in first)]


async def test_one_that_is_not_durable_yet_is_acknowledged_over_neither_link_and_then_over_both(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    async with running(folder, acl=rules(tmp_path)) as broker:
        link, other = await two_links(broker)
        with commits_held_up(folder):
            sent = send_all(link, [1])
            await link.ping()
            sent_again = send_all(other, [1, 2])
            await other.ping()  # no acknowledgement came before its answer
            await link.ping()
        assert await answers(link, Puback, 1) == sent
        assert await answers(other, Puback, 2) == sent_again
        assert broker.counters.messages_duplicate == 1
    assert seqs_in(folder) == [1, 2]


async def test_one_whose_first_copy_could_not_be_stored_is_stored_itself(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    async with running(folder, acl=rules(tmp_path)) as broker:
        link, other = await two_links(broker)
        with commits_held_up(folder) as lock:
            lock.execute("ROLLBACK")
            unlucky = "WHEN instr(NEW.body, CAST('link-a' AS BLOB)) BEGIN SELECT RAISE(ABORT, 'unlucky'); END"
            lock.execute(f"CREATE TRIGGER broken BEFORE INSERT ON message_group {unlucky}")
            lock.execute("BEGIN IMMEDIATE")
            send_all(link, [1])
            await link.ping()
            sent = send_all(other, [1, 2])
            await other.ping()
        await link.expect(Disconnect)
        assert await answers(other, Puback, 2) == sent
        assert broker.counters.messages_duplicate == 0
    assert [(message.publisher, message.seq) for _, message in messages_in(folder)] == [("link-b", 1), ("link-b", 2)]


async def test_one_that_no_consumer_takes_stays_with_its_gateway_and_is_stored_when_it_is_wanted(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "store"
    for life in range(2):
        async with running(folder, acl=rules(tmp_path)) as broker:
            link = await connected(broker, "link-a")
            codes = [(await link.publish("a", b"1", **identified(1))).reason_code for _ in range(2)]
            assert codes == [NO_MATCHING_SUBSCRIBERS] * 2
            if life:
                reader = await subscribed(broker, "reader", "a")
                assert (await link.publish("a", b"1", **identified(1))).reason_code == SUCCESS
                assert (await reader.receive()).payload == b"1"
                assert broker.counters.messages_duplicate == 0


async def test_a_message_of_qos_0_that_came_before_is_not_handed_on(tmp_path: Path) -> None:
    async with running(tmp_path / "store", acl=rules(tmp_path)) as broker:
        link, other = await two_links(broker)
        reader = await subscribed(broker, "reader", "a")
        send_all(link, [1], 0)
        await link.ping()
        send_all(other, [1, 2], 0)
        assert [(await reader.receive()).payload for _ in range(2)] == [b"1", b"2"]
        await other.publish("a", b"1", **identified(1))  # with a promise, which one of QoS 0 never had
        assert (await reader.receive()).payload == b"1"
        assert broker.counters.messages_duplicate == 1


async def send_again(link: Client, qos: int) -> None:
    """Sends a retained message; returns when the gateway has taken it."""
    sent = send_all(link, [1], qos, retain=True)
    assert await answers(link, Puback, len(sent)) == sent
    await link.ping()


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_retained_message_that_comes_again_is_published_where_its_copy_is_gone(
    tmp_path: Path, qos: int
) -> None:
    """Its copy went with the interest in it, which is back."""
    async with running(tmp_path / "store", acl=rules(tmp_path)) as broker:
        link, other = await two_links(broker)
        send_all(link, [1], 1, retain=True)
        await answers(link, Puback, 1)
        reader = await subscribed(broker, "reader", "a")
        assert (await reader.receive()).payload == b"1"
        await send_again(other, qos)
        assert broker.counters.messages_duplicate == 1
        await other.publish("a", b"", retain=True)
        assert (await reader.receive()).payload == b""
        for _ in range(2):
            await send_again(other, qos)
            await broker.log.submit([])
        assert (await reader.receive()).payload == b"1"
        await until(lambda: broker.log.space.retained.topics == 1, "it is retained")
        await until(lambda: broker.counters.messages_duplicate == 2, "the second one was known")
        await other.publish("a", b"marker")
        assert (await reader.receive()).payload == b"marker"


async def test_what_brings_no_identity_or_may_not_bring_it_is_stored_each_time(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    async with running(folder) as broker:
        link, _ = await two_links(broker)
        for _ in range(2):
            await link.publish("a")
            await link.publish("a", **identified(1))
        assert broker.counters.messages_duplicate == 0
    assert len(messages_in(folder)) == 4


class Neighbour:
    """Sends numbers until they are acknowledged, in any order and as often as it likes."""

    def __init__(self, name: str, dice: random.Random) -> None:
        self._name = name
        self._dice = dice
        self._client: Client | None = None
        self.acknowledged: set[int] = set()

    async def send(self, port: int, seqs: list[int]) -> None:
        """Sends each until the end of the connection; what was acknowledged by then is noted."""
        qos = self._dice.choice((1, 2))
        if self._client is None:
            self._client = await Client(self._name, clean_start=True).connect(port)
            if self._client.connack.reason_code != SUCCESS:
                self._client = None
                return
        sent = dict(zip(send_all(self._client, seqs, qos, dup=self._dice.random() < 0.2), seqs, strict=True))
        for _ in seqs:
            event = await self._client.event()
            if not isinstance(event, Puback | Pubrec):
                self._client = None
                return
            assert event.reason_code == SUCCESS
            self.acknowledged.add(sent[event.packet_identifier])
        if qos == 2:
            await self._client.disconnect()
            self._client = None

    def forget(self) -> None:
        self._client = None


async def test_random_duplicates_over_failing_commits_and_restarts_are_stored_once_each(
    tmp_path: Path, seed: int
) -> None:
    dice, folder = random.Random(seed), tmp_path / "store"
    neighbours = [Neighbour(name, dice) for name in ("link-a", "link-b", "link-c")]
    for life in range(4):
        async with running(folder, acl=rules(tmp_path)) as broker:
            if not life:  # its session goes on, and keeps all in the log
                await (await subscribed(broker, "keeper", "#")).disconnect()
            for _ in range(12):
                sending = [
                    asyncio.create_task(one.send(tcp_port(broker), dice.choices(range(1, 60), k=dice.randrange(1, 40))))
                    for one in dice.sample(neighbours, k=2)
                ]
                if dice.random() < 0.3:
                    with disk_full():
                        await asyncio.gather(*sending)
                else:
                    await asyncio.gather(*sending)
        for one in neighbours:
            one.forget()
        seqs = seqs_in(folder)
        assert len(seqs) == len({*seqs})
        assert set().union(*(one.acknowledged for one in neighbours)) <= {*seqs}
