"""Messages as routes number them, and statements of these routes, as a lander lands both."""

from collections.abc import Sequence
from typing import Any

from cloud.landing.file import Link, Row
from tests.cloud.messages import row
from wire.route_numbers import (
    STATEMENT_TYPE,
    DroppedRange,
    HandedOn,
    LeftOutRuns,
    Statement,
    encode_statement,
    statement_topic,
)

LINK_EPOCH = 31
ORIGIN_EPOCH = 0xCAFE


def handed(origin: str, seq: int, number: int, gateway: str, *more: Link, epoch: int = LINK_EPOCH) -> Row:
    """A message that the route `central` of a gateway handed on with a number; `more` are later links."""
    return row(seq, origin)._replace(via=[Link(epoch, number, gateway, "central"), *more])


def handed_on(origin: str, messages: int, first: int, last: int) -> HandedOn:
    return HandedOn(origin, ORIGIN_EPOCH, last, messages, first, last)


def dropped(reason: str, origin: str, first: int, last: int, messages: int | None = None) -> DroppedRange:
    count = last - first + 1 if messages is None else messages
    return DroppedRange(reason, "route/central", origin, ORIGIN_EPOCH, first, last, count)


def without(origin: str, *runs: tuple[int, int]) -> LeftOutRuns:
    """What a route left out of the messages of an origin."""
    return LeftOutRuns(origin, ORIGIN_EPOCH, list(runs))


def stated(
    gateway: str,
    statement: int,
    first: int,
    last: int,
    origins: Sequence[HandedOn] = (),
    ranges: Sequence[DroppedRange] = (),
    refused: Sequence[tuple[int, int]] = (),
    backfill: bool = False,
    left_out: Sequence[LeftOutRuns] = (),
    **change: Any,
) -> Row:
    """The message with a statement, which has the number behind the covered ones."""
    about = gateway, "central", LINK_EPOCH, statement, first, last
    said = Statement(*about, list(origins), list(ranges), list(refused), backfill, list(left_out))
    message = row(statement, gateway, encode_statement(said))._replace(
        topic=statement_topic(gateway, "central"),
        content_type=STATEMENT_TYPE,
        gateway=gateway,
        via=[Link(LINK_EPOCH, last + 1, gateway, "central")],
    )
    return message._replace(**change)
