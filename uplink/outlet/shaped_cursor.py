"""A cursor between a route's own and its sender: it hands messages out as the route sends them."""

from collections.abc import Callable, Iterable, Sequence

from gateway.routes import Message
from gateway.store import Delivery, LaneCursor, Piece
from uplink.refusals import Refusals
from uplink.shape.shaper import CannotShape


class ShapedCursor:
    """Hands out what a cursor hands out, shaped. A message that cannot be shaped is set aside, with the reason.

    Args:
        cursor: the route's cursor.
        shape: shapes a message, or raises CannotShape.
        refusals: where messages are set aside.
        via: returns the number of the link of the message that is the cursor's n-th, as it is sent.
    """

    durable = True

    def __init__(
        self,
        cursor: LaneCursor,
        shape: Callable[[Message], Message],
        refusals: Refusals,
        via: Callable[[int], str],
    ) -> None:
        self.consumer = cursor.consumer
        self._cursor = cursor
        self._shape = shape
        self._refusals = refusals
        self._via = via

    async def fetch_now(self, limit: int) -> list[Delivery]:
        """Returns up to ``limit`` deliveries in order; none if none waits. Raises sqlite3.Error, TooManyRefused."""
        while deliveries := await self._cursor.fetch_now(limit):
            try:
                if shaped := [one for one in map(self._shaped, deliveries) if one is not None]:
                    return shaped
            except BaseException:
                self._cursor.redeliver([delivery.packet_identifier for delivery in deliveries])
                raise
        return []

    async def fetch_pieces(self, _limit: int, single_limit: int) -> Sequence[Piece]:
        """Does the same for a route in batches: each message is shaped by itself, so none of them is in a run."""
        return await self.fetch_now(single_limit)

    def wake_with(self, wake: Callable[[], None] | None) -> None:
        """Calls this, from now on, whenever ``fetch_now`` may have deliveries, and now."""
        self._cursor.wake_with(wake)

    def acknowledge_all(self, packet_identifiers: Sequence[int]) -> int:
        """Deliveries arrived; returns how many of them were on the way."""
        return self._cursor.acknowledge_all(packet_identifiers)

    def acknowledge_pieces(self, pieces: Iterable[Piece]) -> None:
        """What was handed out has arrived."""
        self._cursor.acknowledge_pieces(pieces)

    def redeliver_pieces(self, pieces: Iterable[Piece]) -> None:
        """Hands out again, one by one, what was handed out."""
        self._cursor.redeliver_pieces(pieces)

    def redeliver(self, packet_identifiers: Iterable[int]) -> None:
        """Hands deliveries out again, before any new one."""
        self._cursor.redeliver(packet_identifiers)

    @property
    def has_waiting(self) -> bool:
        """Whether messages may wait that were not handed out, or were handed back."""
        return self._cursor.has_waiting

    def place_of(self, packet_identifier: int) -> tuple[int, int]:
        """Returns position and number of a delivery without an acknowledgement. Raises KeyError."""
        return self._cursor.place_of(packet_identifier)

    def _shaped(self, delivery: Delivery) -> Delivery | None:
        try:
            message = self._shape(delivery.message)
        except CannotShape as error:
            self._refusals.set_aside(delivery.position, str(error), self._via(delivery.number))
            self._cursor.acknowledge_all([delivery.packet_identifier])
            return None
        if message is delivery.message:
            return delivery
        retain = delivery.retain and message.retain
        return delivery._replace(message=message, qos=min(delivery.qos, max(1, message.qos)), retain=retain)
