"""The log's rows: messages come out as they went in, whole runs of them too, and damage is found and named."""

import contextlib
import random
import sqlite3
from collections.abc import Iterator

import pytest

from gateway.message import Message
from gateway.store.tables import log_rows
from gateway.store.tables.log_rows import CorruptRow, LogRow, Part, PublishBatch
from tests.gateway.store.support import batch_of
from wire.codec.packets import MQTT_3_1_1, MQTT_5
from wire.properties import CONTENT_TYPE, USER_PROPERTY

EPOCH = 7


@contextlib.contextmanager
def table() -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(log_rows.SCHEMA)
        yield connection


def run_of(names: list[str], payloads: list[bytes], level: int = MQTT_5, first_seq: int = 1) -> PublishBatch:
    return batch_of(list(zip(names, payloads, strict=True)), level, epoch=EPOCH, first_seq=first_seq)


@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_5])
def test_the_size_of_a_run_is_that_of_its_messages_when_it_comes_and_when_it_was_stored(level: int) -> None:
    properties = {CONTENT_TYPE: "text/plain", USER_PROPERTY: [("b", "ü"), ("a", "2")]} if level == MQTT_5 else {}
    run = batch_of([("a/b", b""), ("ü", b"x" * 200), ("a/b", b"1")], level, properties)
    with table() as connection:
        log_rows.write(connection, log_rows.split(1, [run]), 5, False)
        [row] = log_rows.read(connection, 0, 3)
    [read] = row.parts
    assert isinstance(read, PublishBatch)
    size = sum(message.content_size for message in run.messages())
    assert (run.content_size, read.content_size) == (size, size)
    assert size >= 208 + 3 * sum(map(len, ["text/plain", "b", "ü", "a", "2"])) * bool(properties)


@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_5])
def test_a_run_holds_the_messages_that_were_published(level: int) -> None:
    names, payloads = ["a/b", "ü", "a/b"], [b"", b"x" * 200, bytes(range(256)) * 60]
    run = run_of(names, payloads, level, first_seq=40)
    assert run.messages() == [
        Message(name, payload, 1, False, {}, "gw", EPOCH, seq, 1234, "gw", "client")
        for name, payload, seq in zip(names, payloads, (40, 41, 42), strict=True)
    ]
    assert run.messages() is run.messages()


def some_parts(dice: random.Random) -> list[Part]:
    properties = {CONTENT_TYPE: "text/plain", USER_PROPERTY: [["b", "1"], ["a", "2"]]}
    parts: list[Part] = []
    for _ in range(dice.randrange(1, 30)):
        count = dice.randrange(1, 40)
        payloads = [dice.randbytes(dice.choice([0, 5, 100, 9000])) for _ in range(count)]
        if dice.random() < 0.5:
            names = [dice.choice(["a", "b/c", "d/é/f"]) for _ in payloads]
            parts.append(run_of(names, payloads, dice.choice([MQTT_3_1_1, MQTT_5]), dice.randrange(1, 1 << 40)))
        else:
            message = Message("t", payloads[0], 2, True, properties, "device", 9, 8, 777, "other", "c", 999)
            parts.append(message)
    return parts


@pytest.mark.parametrize("deflate", [False, True])
def test_what_is_written_is_read_from_any_position_on(seed: int, deflate: bool) -> None:
    dice = random.Random(seed)
    for _ in range(20):
        parts = some_parts(dice)
        first = dice.randrange(1, 1000)
        expected = list(enumerate([message for part in parts for message in part.messages()], first))
        with table() as connection:
            log_rows.write(connection, log_rows.split(first, parts), 5, deflate)
            assert connection.execute(log_rows.NEWEST).fetchone() == (expected[-1][0], 5)
            assert connection.execute(log_rows.OLDEST).fetchone() == (first,)
            after = dice.randrange(first - 1, expected[-1][0])
            found = list(log_rows.read(connection, after, expected[-1][0]))
            read = [numbered for group in found for numbered in group.read(after, 1_000_000)]
            assert read == expected[after + 1 - first :]
            assert all(group.size < 2 * log_rows.ROW_BYTES_MAX or len(group.parts) == 1 for group in found)


def test_a_group_gives_no_more_than_asked_for() -> None:
    group = LogRow(10, [run_of(["a"] * 5, [b""] * 5), Message("b", b""), run_of(["c"] * 5, [b""] * 5)])
    assert [position for position, _ in group.read(11, 5)] == [12, 13, 14, 15, 16]
    assert [position for position, _ in group.read(19, 5)] == [20]
    assert group.read(20, 5) == []


def test_deflated_rows_are_smaller() -> None:
    parts: list[Part] = [run_of(["some/topic"] * 100, [b'{"v":%d}' % number for number in range(100)])]
    sizes = []
    for deflate in (False, True):
        with table() as connection:
            log_rows.write(connection, log_rows.split(1, parts), 1, deflate)
            sizes.append(connection.execute("SELECT length(body) FROM message_group").fetchone()[0])
    assert sizes[1] < sizes[0] / 3


@pytest.mark.parametrize("deflate", [False, True])
def test_damage_is_found_and_named(seed: int, deflate: bool) -> None:
    dice = random.Random(seed)
    with table() as connection:
        log_rows.write(
            connection, log_rows.split(1, [Message("a", dice.randbytes(500) * 2) for _ in range(3)]), 3, deflate
        )
        (body,) = connection.execute("SELECT body FROM message_group").fetchone()
        for _ in range(50):
            corrupt = bytearray(body)
            corrupt[dice.randrange(len(corrupt))] ^= 1 << dice.randrange(8)
            connection.execute("UPDATE message_group SET body = ?", (bytes(corrupt),))
            with pytest.raises(CorruptRow) as caught:
                list(log_rows.read(connection, 0, 3))
            assert (caught.value.first, caught.value.last) == (1, 3)
