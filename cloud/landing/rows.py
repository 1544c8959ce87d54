"""The rows that a lander makes of the messages of its broker."""

import time

import pyarrow as pa

from cloud.landing.batch import count_numbers, to_links, to_table
from cloud.landing.file import Row, join
from cloud.landing.remarks import Remarks
from wire.bulk.column_batch import MalformedBatch, decode_batch
from wire.codec.packets import Publish
from wire.identity import IDENTITY_PROPERTY, RECEIVED_PROPERTY, decode_identity, decode_received, find_user_property
from wire.properties import CONTENT_TYPE, USER_PROPERTY
from wire.route_numbers import VIA_PROPERTY, Via, decode_via, gateway_of_via


class MessageRows:
    """Reads identity, provenance and route numbers from messages.

    Args:
        lander: its name.

    Attributes:
        remarks: what is wrong with messages.
    """

    def __init__(self, lander: str) -> None:
        self._lander = lander
        self.remarks = Remarks()

    def of_message(self, message: Publish) -> Row:
        """Returns the row of a message; its `seq` is 0 if it brings no identity."""
        return self._row(message, message.payload, _vias(message))

    def of_batch(self, message: Publish) -> pa.Table | None:
        """Returns the rows of the messages in a column batch; None if it cannot be decoded: then it lands as it is."""
        try:
            batch = decode_batch(message.payload)
        except MalformedBatch as error:
            self.remarks.add("a column batch that cannot be decoded lands as it is", message.topic, error)
            return None
        vias = _vias(message)
        is_of_route = not self._is_of_client(message, vias)
        of_messages, of_batch = (vias[:1], vias[1:]) if is_of_route else ([], vias)
        via = self._via_of_batch(message, of_messages[0], len(batch)) if of_messages else None
        landed_ms = time.time_ns() // 1_000_000
        rows = to_table(batch, landed_ms, message.qos, self._lander, via, is_of_route=is_of_route)
        if find_user_property(message.properties, IDENTITY_PROPERTY) is not None:
            # A Holdfast gateway gave the batch a number: without a row it would look lost.
            rows = join([rows, self._row(message, b"", of_batch)])
        return rows

    def _is_of_client(self, message: Publish, vias: list[str]) -> bool:
        """Whether a client of a gateway made this batch, and no route.

        A route's batch is first accepted by the gateway behind the link whose number it has; one of a client by the
        gateway that then gave it a number as to any other message. Without this a client could put a statement of this
        gateway's route into a batch, and the job would believe it.
        """
        try:
            return bool(vias) and gateway_of_via(vias[0]) == self._provenance(message)[1]
        except ValueError:
            return False

    def _via_of_batch(self, message: Publish, value: str, messages: int) -> Via | None:
        """Returns the route numbers of the messages in a batch, None if they cannot be those."""
        try:
            via = decode_via(value)
            if count_numbers(via) != messages:
                raise ValueError(f"{count_numbers(via)} numbers for {messages} messages")
        except ValueError as error:
            self.remarks.add(f"{VIA_PROPERTY} of a batch left out", message.topic, error)
            return None
        return via

    def _row(self, message: Publish, payload: bytes, vias: list[str]) -> Row:
        origin, epoch, seq = self._identify(message)
        received_ms, gateway = self._provenance(message)
        links, errors = to_links(vias)
        for error in errors:
            self.remarks.add(f"{VIA_PROPERTY} left out", message.topic, error)
        return Row(
            origin=origin,
            epoch=epoch,
            seq=seq,
            received_ms=received_ms,
            gateway=gateway,
            landed_ms=time.time_ns() // 1_000_000,
            topic=message.topic,
            qos=message.qos,
            retain=message.retain,
            content_type=message.properties.get(CONTENT_TYPE),
            payload=payload,
            lander=self._lander,
            via=links,
        )

    def _identify(self, message: Publish) -> tuple[str, int, int]:
        text = find_user_property(message.properties, IDENTITY_PROPERTY)
        if text is not None:
            try:
                return decode_identity(text)
            except ValueError as error:
                self.remarks.add(f"{IDENTITY_PROPERTY} is not an identity; the lander gives one", message.topic, error)
        return self._lander, 0, 0

    def _provenance(self, message: Publish) -> tuple[int | None, str | None]:
        text = find_user_property(message.properties, RECEIVED_PROPERTY)
        try:
            return decode_received(text) if text is not None else (None, None)
        except ValueError as error:
            self.remarks.add(f"{RECEIVED_PROPERTY} left out", message.topic, error)
            return None, None


def _vias(message: Publish) -> list[str]:
    """Returns the values of `hf-via` in their order, the earliest link first."""
    return [value for name, value in message.properties.get(USER_PROPERTY, ()) if name == VIA_PROPERTY]
