"""SUBSCRIBE and UNSUBSCRIBE over one connection of a route, and their answers."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from gateway.links import RENEW_PROPERTY
from uplink.connect.connector import LinkDown
from uplink.connect.remote import Remote
from wire.bulk.connection import BulkClientConnection
from wire.codec.packets import NO_LOCAL, RETAIN_AS_PUBLISHED, RETAIN_IF_NEW, Suback, Unsuback
from wire.errors import WireError
from wire.properties import USER_PROPERTY
from wire.reasons import UNSPECIFIED_ERROR, describe

QOS = 2
OPTIONS_ANEW = QOS | NO_LOCAL | RETAIN_AS_PUBLISHED
OPTIONS = OPTIONS_ANEW | RETAIN_IF_NEW
ANSWER_DEADLINE_S = 10.0  # between two answers
SIZE_PART = 2  # of the broker's Maximum Packet Size, at most, are the filters of a packet
REFUSED_SAID = 10  # filters in a text

logger = logging.getLogger(__name__)


class Asked(NamedTuple):
    """The topic filters of one packet.

    ``ends_others``: it ends all subscriptions of the session except the ones asked for over this connection.
    """

    topic_filters: list[str]
    is_subscribe: bool
    ends_others: bool = False


class Requests:
    """Asks the broker for subscriptions.

    Args:
        name: the route's, for the log.
        client: the connection, already accepted.
        remote: the line under it.
        at_once: the most filters in one packet: some brokers take only a few, and one may refuse a few.
        answered: called with each packet that is answered, and the filters in it that were not refused.

    ``reserve`` is called with the packet identifier of each request, and ``release`` when it is answered: messages must
    not use it meanwhile. ``refused`` has the filters that the broker refuses, each with the reason, and ``lower`` names
    those for which it grants a lower QoS.
    """

    def __init__(
        self,
        name: str,
        client: BulkClientConnection,
        remote: Remote,
        at_once: int,
        answered: Callable[[Asked, list[str]], None],
    ) -> None:
        self.refused: dict[str, str] = {}
        self.lower: list[str] = []
        self.reserve: Callable[[int], None] = _ignore
        self.release: Callable[[int], None] = _ignore
        self._name = name
        self._client = client
        self._remote = remote
        self._at_once = at_once
        self._answered = answered
        self._waiting: dict[int, Asked] = {}  # by packet identifier
        self._is_changed = asyncio.Event()

    def subscribe(self, topic_filters: Iterable[str], *, is_anew: bool = False) -> None:
        """Subscribes, with the retained messages of filters that are new to the session, or of all of them."""
        options = OPTIONS_ANEW if is_anew else OPTIONS
        for some in self._pieces(topic_filters):
            try:
                self._note(self._client.subscribe([(one, options) for one in some]), Asked(some, True))
            except WireError as error:  # the CONNACK says that the broker does not serve it
                self.refused.update(dict.fromkeys(some, str(error)))
                self._answered(Asked(some, True), [])

    def unsubscribe(self, topic_filters: Iterable[str]) -> None:
        """Unsubscribes. Raises LinkDown."""
        for some in self._pieces(topic_filters):
            self._unsubscribe(Asked(some, False))

    def end_others(self) -> None:
        """Ends all subscriptions of the session, at a gateway, that were not asked for over this connection."""
        self._unsubscribe(Asked(["#"], False, True), {USER_PROPERTY: [(RENEW_PROPERTY, "others")]})

    @property
    def waiting(self) -> list[Asked]:
        """The requests without an answer, in their order."""
        return list(self._waiting.values())

    @property
    def is_open(self) -> bool:
        """Whether the connection stands."""
        return self._client.connected and not self._remote.ended.done()

    def tell(self, topic: str, payload: bytes) -> None:
        """Sends a message of QoS 0 at once."""
        self._client.publish(topic, payload, qos=0)
        self._remote.flush()

    def flush(self) -> None:
        """Puts the requests on the line."""
        self._remote.flush()

    async def wait_for_answers(self) -> None:
        """Waits until all requests are answered. Raises LinkDown."""
        ended = self._remote.ended
        while self._waiting and not ended.done():
            self._is_changed.clear()
            changing = asyncio.ensure_future(self._is_changed.wait())
            futures: tuple[asyncio.Future[Any], ...] = (changing, ended)
            done, _ = await asyncio.wait(futures, timeout=ANSWER_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
            changing.cancel()
            if not done:
                raise LinkDown(f"no answer to SUBSCRIBE or UNSUBSCRIBE in {ANSWER_DEADLINE_S:g} s")
        if ended.done():
            raise LinkDown(ended.result())

    def handle(self, packet: Suback | Unsuback) -> None:
        """Takes an answer of the broker."""
        asked = self._waiting.pop(packet.packet_identifier)
        self.release(packet.packet_identifier)
        granted = []
        for topic_filter, code in zip(asked.topic_filters, packet.reason_codes, strict=True):
            if code < UNSPECIFIED_ERROR:
                granted.append(topic_filter)
                if asked.is_subscribe and code < QOS:
                    self.lower.append(f"{topic_filter!r} (QoS {code})")
            elif asked.is_subscribe:
                self.refused[topic_filter] = describe(code)
            else:
                logger.warning("route %s: %r is not unsubscribed: %s", self._name, topic_filter, describe(code))
        self._answered(asked, granted)
        self._is_changed.set()

    def problem_with(self, topic_filters: Iterable[str]) -> str:
        """Returns which of these filters the broker refuses, "" if it refuses none."""
        refused = [f"{one!r} ({self.refused[one]})" for one in topic_filters if one in self.refused]
        return f"the broker does not let the route subscribe to {_shortened(refused)}" if refused else ""

    @property
    def remark(self) -> str:
        """What the broker serves otherwise than asked for, "" if nothing."""
        return f"the broker grants a lower QoS to {_shortened(self.lower)}" if self.lower else ""

    def _unsubscribe(self, asked: Asked, properties: dict[int, Any] | None = None) -> None:
        try:
            self._note(self._client.unsubscribe(asked.topic_filters, properties), asked)
        except WireError as error:
            raise LinkDown(str(error)) from error

    def _note(self, packet_identifier: int, asked: Asked) -> None:
        self._waiting[packet_identifier] = asked
        self.reserve(packet_identifier)

    def _pieces(self, topic_filters: Iterable[str]) -> Iterator[list[str]]:
        most = self._client.maximum_packet_size_peer // SIZE_PART
        some: list[str] = []
        size = 0
        for topic_filter in topic_filters:
            if len(some) >= self._at_once or (some and size + len(topic_filter) * 4 > most):
                yield some
                some, size = [], 0
            some.append(topic_filter)
            size += len(topic_filter) * 4 + 3
        if some:
            yield some


def _ignore(_: int) -> None:
    """No message is sent yet."""


def _shortened(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - REFUSED_SAID} more" if len(texts) > REFUSED_SAID else ""
    return ", ".join(texts[:REFUSED_SAID]) + more
