"""A decoder that makes numbers of texts: for senders that put numbers in quotes, with commas, or with units."""

from cloud.transforms.decoders import decode_messages
from cloud.transforms.record import Message, Record, Undecodable
from cloud.transforms.text_values import read_measure


def decode_numbers(message: Message) -> list[Record]:
    """Returns what the built-in decoders give, with a number in the place of each text that is one. Raises Undecodable.

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
