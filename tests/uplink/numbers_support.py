"""Routes that number messages and state what they have numbered, and what the next broker got of it."""

from typing import Any

from gateway.message import Message
from gateway.store import MessageLog
from tests.support.scripted_broker import ScriptedBroker
from tests.uplink.support import route_config
from uplink.route import Route
from wire.codec.packets import Publish
from wire.identity import IDENTITY_PROPERTY, decode_identity, find_user_property
from wire.properties import CONTENT_TYPE
from wire.route_numbers import (
    STATEMENT_TYPE,
    VIA_PROPERTY,
    HandedOn,
    Statement,
    Via,
    decode_statement,
    decode_via,
)
from wire.runs import join_runs

STATING = 3600  # seconds: a statement at each connection, and none between


def route_to(broker: ScriptedBroker, log: MessageLog, **keys: object) -> Route:
    return Route(route_config(broker.port, **keys), "gateway-1", log)


async def publish_from(log: MessageLog, origin: str, seqs: range, *, topic: str = "a", **fields: Any) -> None:
    for seq in seqs:
        await log.submit([Message(topic, b"0", origin=origin, epoch=7, seq=seq, **fields)])


def via_of(publish: Publish) -> Via:
    text = find_user_property(publish.properties, VIA_PROPERTY)
    assert text is not None
    return decode_via(text)


def number_of(publish: Publish) -> int:
    """The route number of a message that goes by itself."""
    ((first, last),) = via_of(publish).runs
    assert first == last
    return first


def statements(broker: ScriptedBroker, connection: int = -1) -> list[Statement]:
    """The statements that a connection brought, in their order."""
    return [
        decode_statement(publish.payload)
        for publish in broker.publishes[connection]
        if publish.properties.get(CONTENT_TYPE) == STATEMENT_TYPE
    ]


def all_statements(broker: ScriptedBroker) -> list[Statement]:
    """The statements of all connections, each once."""
    found = {one.statement: one for number in range(len(broker.publishes)) for one in statements(broker, number)}
    return [found[number] for number in sorted(found)]


def identity(publish: Publish) -> str:
    return find_user_property(publish.properties, IDENTITY_PROPERTY) or ""


def identities(broker: ScriptedBroker) -> list[tuple[str, int]]:
    """Origin and seq of the devices' messages that the broker got, in order."""
    texts = [identity(one) for sent in broker.publishes for one in sent]
    found = [(origin, seq) for origin, _, seq in map(decode_identity, texts)]
    return [one for one in found if one[0] != "gateway-1"]


def handed_on(statement: Statement) -> list[HandedOn]:
    """What a statement says of devices' messages, and not of the gateway's own."""
    return [one for one in statement.origins if one.origin != "gateway-1"]


def joined(found: list[Statement]) -> dict[str, HandedOn]:
    """All that statements say of each device, after a check that they cover all numbers from 1 on."""
    assert [statement.statement for statement in found] == list(range(1, len(found) + 1))
    assert [statement.first for statement in found[:1]] == [1][: len(found)]
    assert [one.first for one in found[1:]] == [one.last + 1 for one in found[:-1]]
    handed: dict[str, HandedOn] = {}
    for one in (one for statement in found for one in handed_on(statement)):
        had = handed.get(one.origin, one._replace(messages=0))
        highest, last = max(had.highest, one.highest), max(had.last, one.last)
        first, messages = min(had.first, one.first), had.messages + one.messages
        handed[one.origin] = HandedOn(one.origin, one.epoch, highest, messages, first, last)
    return handed


def left_out(found: list[Statement]) -> dict[str, list[tuple[int, int]]]:
    """The runs of seqs that statements name as left out, by origin."""
    runs: dict[str, list[tuple[int, int]]] = {}
    for one in (one for statement in found for one in statement.left_out):
        runs.setdefault(one.origin, []).extend(one.runs)
    return {origin: join_runs(sorted(some)) for origin, some in runs.items()}
