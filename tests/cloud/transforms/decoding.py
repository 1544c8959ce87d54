"""Decodes single messages as the job does."""

from collections.abc import Sequence

from cloud.transforms.decoders import decode_messages
from cloud.transforms.own_decoders import OwnDecoder
from cloud.transforms.record import Message, Record
from cloud.transforms.sparkplug import Births

LANDED_US = 1_773_504_566_000_000
"""When the messages landed: an hour after the times in their payloads, 2026-03-14."""


def decode_one(
    topic: str,
    payload: str | bytes,
    content_type: str | None = None,
    own: Sequence[OwnDecoder] = (),
    births: Births | None = None,
    received_us: int | None = None,
    landed_us: int | None = LANDED_US,
) -> list[Record]:
    """Returns the records of one message; fails with its problem if it has one."""
    content = payload.encode() if isinstance(payload, str) else payload
    (outcome,) = decode_messages([Message(topic, content_type, content, received_us, landed_us)], own, births)
    assert isinstance(outcome, list), outcome
    return outcome


def problem_of(topic: str, payload: str | bytes, content_type: str | None = None, births: Births | None = None) -> str:
    """Returns the problem of one message; fails if it has none."""
    content = payload.encode() if isinstance(payload, str) else payload
    (outcome,) = decode_messages([Message(topic, content_type, content)], births=births)
    assert isinstance(outcome, str), outcome
    return outcome


def values(records: Sequence[Record]) -> dict[str, object]:
    """Returns the value of each metric."""
    assert len({record.metric for record in records}) == len(records)
    return {record.metric: next(value for value in record[6:] if value is not None) for record in records}


def devices(records: Sequence[Record]) -> set[str | None]:
    return {record.device for record in records}


def times_us(records: Sequence[Record]) -> set[int | None]:
    return {record.time_us for record in records}
