"""Which decoder takes which message, and what each message of a list resolves to.

Whatever a decoder does with a payload, the message ends with records or with a problem, and the others are decoded.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Any

import msgspec

from cloud.transforms.json_values import decode_cbor, decode_json
from cloud.transforms.own_decoders import OwnDecoder, first_match, load_function
from cloud.transforms.record import (
    PAYLOAD_MAX,
    RECORDS_MAX,
    TIME_MAX_S,
    TIME_MIN_S,
    Allowance,
    Message,
    Record,
    Undecodable,
)
from cloud.transforms.sender.quality import WORDS
from cloud.transforms.senml import resolve, resolve_cbor
from cloud.transforms.sparkplug import Births, decode_sparkplug, is_sparkplug
from cloud.transforms.text_values import content_type_of, decode_csv, decode_value, read_measure, strip_text
from wire import topics
from wire.bulk.column_batch import CONTENT_TYPE as COLUMN_BATCH
from wire.bulk.column_batch import MalformedBatch, decode_batch
from wire.route_numbers import STATEMENT_TYPE

PROBLEM_MAX = 500
"""The longest problem (characters)."""
Outcome = list[Record] | str
"""What a message resolves to: its records or its problem."""
_Decode = Callable[[Message], list[Record]]
_CBOR = range(0x80, 0xC0)  # arrays and maps begin with these bytes, and no text in UTF-8 does
_COUNT_MAX = 2**63
_DAYS_US = 2**28 * 1_000_000  # as in SenML
_NO_BIRTHS = Births()


def decode_messages(
    messages: Iterable[Message], own: Sequence[OwnDecoder] = (), births: Births | None = None
) -> list[Outcome]:
    """Returns the outcome of each message, in their order.

    own: decoders of one's own. The first one that takes a message comes before the built-in ones.
    births: the births of Sparkplug B that explain messages of other batches.
    """
    choices: dict[tuple[str, str | None], _Decode | OwnDecoder] = {}
    waiting: dict[OwnDecoder, list[tuple[int, Message]]] = {}
    outcomes: list[Outcome] = []
    births = births or Births()
    for message in messages:
        key = message.topic, message.content_type
        if (choice := choices.get(key)) is None:
            choice = choices[key] = _choose(*key, own, births)
        if isinstance(choice, OwnDecoder):
            waiting.setdefault(choice, []).append((len(outcomes), message))
            outcomes.append("")
        else:
            outcomes.append(_attempt(choice, message))
    for choice, taken in waiting.items():
        for (place, _), outcome in zip(taken, _decode_many(choice, [message for _, message in taken]), strict=True):
            outcomes[place] = outcome
    return outcomes


def is_senml(topic: str, content_type: str | None, own: Sequence[OwnDecoder] = ()) -> bool:
    """Whether messages of this topic and content type are decoded as SenML in JSON, and by no other decoder."""
    return _choose(topic, content_type, own, _NO_BIRTHS) is _decode_senml


def _choose(topic: str, content_type: str | None, own: Sequence[OwnDecoder], births: Births) -> _Decode | OwnDecoder:
    if content_type == STATEMENT_TYPE:
        return _decode_statement
    kind = _media_type(content_type)
    if found := first_match(own, partial(_matches, topic), kind):
        return found if found.mark.whole_batches else partial(_decode_own, found)
    if is_sparkplug(topic):
        return partial(decode_sparkplug, births=births)
    return _BY_CONTENT_TYPE.get(kind, _refuse)


@lru_cache(maxsize=256)
def _media_type(content_type: str | None) -> str:
    return content_type_of(Message("", content_type, b""))[0]


def _matches(topic: str, topic_filter: str) -> bool:
    return topics.matches(topic_filter, topic)


def _attempt(decode: _Decode, message: Message) -> Outcome:
    try:
        if len(message.payload) > PAYLOAD_MAX:
            return f"the payload has {len(message.payload)} bytes; up to {PAYLOAD_MAX} are decoded"
        return decode(message)
    except (Exception, SystemExit) as error:
        return _problem(error)


def _problem(error: BaseException) -> str:
    text = str(error) if isinstance(error, Undecodable) else f"{type(error).__name__}: {error}"
    return text[:PROBLEM_MAX].encode(errors="replace").decode()


# Decoders of one's own


def _decode_own(own: OwnDecoder, message: Message) -> list[Record]:
    try:
        return _checked(load_function(own)(message), message)
    except (Exception, SystemExit) as error:
        raise Undecodable(f"decoder {own.name}: {_problem(error)}") from None


def _decode_many(own: OwnDecoder, messages: list[Message]) -> list[Outcome]:
    """Returns the outcomes of a decoder of whole batches; if it fails, decodes each message alone."""
    small = [message for message in messages if len(message.payload) <= PAYLOAD_MAX]
    try:
        answers = list(load_function(own)(small))
        if len(answers) != len(small):
            raise Undecodable(f"{len(answers)} lists for {len(small)} messages")
    except (Exception, SystemExit) as error:
        if len(messages) == 1:
            return [f"decoder {own.name}: {_problem(error)}"]
        return [outcome for message in messages for outcome in _decode_many(own, [message])]
    by_message = iter(answers)
    return [
        _attempt(partial(_take_answer, own, next(by_message) if len(message.payload) <= PAYLOAD_MAX else ()), message)
        for message in messages
    ]


def _take_answer(own: OwnDecoder, answer: Any, message: Message) -> list[Record]:
    try:
        return _checked(answer, message)
    except Exception as error:
        raise Undecodable(f"decoder {own.name}: {_problem(error)}") from None


def _checked(answer: Any, message: Message) -> list[Record]:
    """Returns the records of a function that is not ours. Raises an error for what no row of `readings` can be."""
    allowance = Allowance(len(message.payload) + len(message.topic))
    records = []
    for given in islice(answer, RECORDS_MAX + 1):
        if not isinstance(given, Record):
            raise Undecodable(f"it gave a {type(given).__name__}, not a Record")
        record = msgspec.convert(tuple(given), Record)
        _check(record)
        allowance.take(record)
        records.append(record)
    return records


def _check(record: Record) -> None:
    values = (record.value, record.value_string, record.value_bool, record.value_data)
    there = sum(value is not None for value in values)
    if not record.metric:
        raise Undecodable("a record has no metric")
    if there > 1 or (there == 0 and record.sum is None):
        raise Undecodable(f"a record of {record.metric!r} has {there} values")
    if not all(math.isfinite(number) for number in (record.value, record.sum) if number is not None):
        raise Undecodable(f"a number of {record.metric!r} is not finite")
    if record.time_us is not None and not TIME_MIN_S <= record.time_us / 1_000_000 < TIME_MAX_S:
        raise Undecodable(f"time {record.time_us} µs is outside the years 1 to 9999")
    if any(not -_COUNT_MAX <= count < _COUNT_MAX for count in (record.boot_id, record.uptime_ms) if count is not None):
        raise Undecodable("a boot id or an uptime has more than 64 bits")
    if record.quality is not None and record.quality not in WORDS:
        raise Undecodable(f"quality {record.quality!r} is none of {', '.join(WORDS)}")
    if record.relative_us is not None and not -_DAYS_US <= record.relative_us <= _DAYS_US:
        raise Undecodable(f"{record.relative_us} µs from now is further than {_DAYS_US} µs")
    for text in (record.device, record.metric, record.unit, record.value_string):
        if text is not None:
            text.encode()


# Decoders that are built in


def _guess(message: Message) -> list[Record]:
    """Decodes a payload that has no content type and speaks for itself."""
    payload = message.payload
    if payload[:1] and payload[0] in _CBOR:
        return decode_cbor(message)
    if strip_text(payload)[:1] in (b"[", b"{", b'"'):
        return decode_json(message)
    return decode_value(message)


def _decode_senml(message: Message) -> list[Record]:
    return resolve(strip_text(message.payload))


def _decode_senml_cbor(message: Message) -> list[Record]:
    return resolve_cbor(message.payload)


def _decode_landed_batch(message: Message) -> list[Record]:
    """Returns no records of the row that stands for a batch whose messages have landed; its payload is empty.

    Raises Undecodable for a batch that the lander could not decode.
    """
    if not message.payload:
        return []
    try:
        decode_batch(message.payload)
    except MalformedBatch as error:
        raise Undecodable(f"a column batch that cannot be decoded: {error}") from None
    raise Undecodable("a column batch that the lander could not decode")


def _decode_statement(_: Message) -> list[Record]:
    """Returns no records: what a route states is in tables of its own."""
    return []


def _refuse(message: Message) -> list[Record]:
    raise Undecodable(f"nothing here decodes content type {message.content_type!r}")


_BY_CONTENT_TYPE: dict[str, _Decode] = {
    "": _guess,
    "application/senml+json": _decode_senml,
    "application/senml+cbor": _decode_senml_cbor,
    "application/cbor": decode_cbor,
    "application/json": decode_json,
    "text/plain": decode_value,
    "text/csv": decode_csv,
    COLUMN_BATCH: _decode_landed_batch,
}


# Numbers that are texts


def decode_numbers(message: Message) -> list[Record]:
    """Returns what the built-in decoders give, with a number in the place of each text that is one. Raises Undecodable.

    It is for senders that put numbers in quotes, with commas, or with units.

    A unit behind the number is the unit of the reading. All other texts stay.
    """
    (outcome,) = decode_messages([message])
    if isinstance(outcome, str):
        raise Undecodable(outcome)
    return list(map(_with_number, outcome))


def _with_number(record: Record) -> Record:
    if record.value_string is None or (measure := read_measure(record.value_string)) is None:
        return record
    return record._replace(value=measure.number, value_string=None, unit=measure.unit or record.unit)
