"""What a route's broker sends down: stored and synced like a client's messages, and acknowledged only then.

The broker keeps a message until it is acknowledged, and sends it again over the next connection. So while the store is
full, messages wait here without an acknowledgement, in bounded memory. Beyond that the route forgets what comes, and
begins a new connection when there is room. It goes on reading meanwhile: acknowledgements of what goes up make room.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from gateway.routes import AckBatch, Intake, Services, Trusting, qos2
from uplink.config import RouteConfig
from uplink.connect.connector import Accepted, LinkDown
from uplink.connect.notes import RouteNotes
from uplink.connect.remote import Step
from uplink.queue import RouteQueue
from wire.backoff import Backoff
from wire.bulk.connection import Acknowledgements
from wire.bulk.reader import Publishes
from wire.codec.packets import NO_LOCAL, RETAIN_AS_PUBLISHED, RETAIN_IF_NEW, Publish, Pubrel, Suback, Unsuback
from wire.errors import WireError
from wire.packet_types import PUBREL
from wire.reasons import UNSPECIFIED_ERROR, describe

QOS = 2
OPTIONS = QOS | NO_LOCAL | RETAIN_AS_PUBLISHED | RETAIN_IF_NEW
ANSWER_DEADLINE_S = 10.0
FULL = "what the broker sends waits: the store, or the queue of a subscriber, is full"
AGAIN = "the broker is to send again what came while the store was full"

logger = logging.getLogger(__name__)


class Inbound:
    """Takes what the broker sends over one connection.

    Args:
        services: the gateway's parts, which check, limit and store the messages.
        config: the route.
        queue: what the store has for the route.
        notes: has the topic filters to which the route has subscribed.
        accepted: the connection.
        backoff: the waits between connections, which begin anew when messages come down.
    """

    def __init__(
        self,
        services: Services,
        config: RouteConfig,
        queue: RouteQueue,
        notes: RouteNotes,
        accepted: Accepted,
        backoff: Backoff,
    ) -> None:
        self._services = services
        self._config = config
        self._publisher = queue.publisher
        self._state = queue.state
        self._notes = notes
        self._client, self._remote, self._connack, _ = accepted
        self._backoff = backoff
        self._acks = AckBatch(services.log.submit, self._answered, self._remote.close)
        self._intake = Intake(
            services,
            self._client,
            queue.publisher,
            Trusting(),
            self._acks,
            self._remote.topics,
            lambda _: None,  # a message of QoS 0 that cannot be taken ends no connection
            is_from_broker=True,
        )
        self._counted = 0  # of the messages that the intake has taken
        self._has_said_full = False
        self._is_behind = False  # messages have come that were not taken
        self._requests: dict[int, str] = {}  # topic filters by packet identifier, without their SUBACK or UNSUBACK
        self._subscribed: list[str] = []  # those that may be subscribed when all answers are here
        self._refused: list[str] = []
        self._lower: list[str] = []
        self._are_answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._others: list[Step] = []
        self._hand_on: Callable[[Step], None] = self._others.append

    async def begin(self) -> None:
        """Subscribes, and unsubscribes what is no longer configured. Raises LinkDown, sqlite3.Error.

        Before this nothing else may be sent: its packet identifier could be that of a message which goes again.
        """
        note, wanted = self._notes.note, self._config.subscribe
        former = note.subscribed if self._connack.session_present else ()
        if not self._connack.session_present and self._publisher.incoming:
            await self._services.log.submit([qos2.forget_incoming(self._publisher.client_id)])
            self._publisher.incoming.clear()
        note.subscribed = tuple(dict.fromkeys([*former, *wanted]))
        await self._notes.save()
        self._remote.may_take = self._may_take
        self._remote.take(self._handle)
        self._request(wanted, [one for one in former if one not in wanted])
        await self._wait_for_answers()
        note.subscribed = tuple(self._subscribed)
        await self._notes.save()
        if self._config.direction == "in":
            self._backoff.reset()
        self._tell()

    def pass_others_to(self, handle: Callable[[Step], None]) -> None:
        """Hands on what is no message, from the beginning of the connection on: acknowledgements of what goes up."""
        self._hand_on = handle
        for step in self._others:
            handle(step)
        self._others = []
        self._remote.flush()

    async def stop(self) -> None:
        """Takes nothing more. What came is written, and acknowledged if the connection still stands."""
        if not self._remote.ended.done():
            self._remote.postpone()
        self._intake.stop()
        await self._acks.settle()
        self._state.receive_problem = self._state.receive_note = ""

    def _request(self, wanted: Iterable[str], unwanted: Iterable[str]) -> None:
        """Sends a packet for each topic filter: some brokers take only a few at once, and one may refuse a few."""
        for topic_filter in wanted:
            try:
                self._requests[self._client.subscribe([(topic_filter, OPTIONS)])] = topic_filter
            except WireError as error:  # the CONNACK says that the broker does not serve it
                self._refused.append(f"{topic_filter!r} ({error})")
        for topic_filter in unwanted:
            try:
                self._requests[self._client.unsubscribe([topic_filter])] = topic_filter
            except WireError as error:
                raise LinkDown(str(error)) from error
        self._note_answered()
        self._remote.flush()

    async def _wait_for_answers(self) -> None:
        ended = self._remote.ended
        futures: tuple[asyncio.Future[Any], ...] = (self._are_answered, ended)
        await asyncio.wait(futures, timeout=ANSWER_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            raise LinkDown(ended.result())
        if not self._are_answered.done():
            raise LinkDown(f"no answer to SUBSCRIBE or UNSUBSCRIBE in {ANSWER_DEADLINE_S:g} s")

    def _handle(self, step: Step) -> None:
        """Acts on what the broker sent, or hands it on."""
        if isinstance(step, Publish):
            self._take(step)
        elif isinstance(step, Publishes):
            self._intake.take_publishes(step)
        elif isinstance(step, Pubrel):
            self._intake.take_pubrels([step.packet_identifier])
        elif isinstance(step, Acknowledgements) and step.packet_type == PUBREL:
            self._intake.take_pubrels(step.identifiers)
        elif isinstance(step, Suback | Unsuback):
            self._note_answer(step)
        else:
            self._hand_on(step)
            return
        self._remote.read_after(self._end_batch)

    async def _end_batch(self) -> None:
        """Submits the work of the packets that came together; returns when more may be read."""
        self._acks.end()
        self._note_taken()
        await self._services.log.wait_for_room()
        await self._intake.wait_for_pace()

    def _take(self, packet: Publish) -> None:
        if packet.qos and (self._is_behind or self._intake.has_many_waiting):
            self._is_behind = True
        else:
            self._intake.handle_publish(packet)

    def _may_take(self, topics: Iterable[str]) -> bool:
        return not self._is_behind and self._intake.may_take(topics)

    def _answered(self) -> None:
        self._remote.flush()
        self._note_taken()
        if self._is_behind and not self._intake.has_waiting:
            self._remote.close(AGAIN)

    def _note_taken(self) -> None:
        taken = self._intake.taken
        if taken > self._counted:
            self._state.received_messages += taken - self._counted
            self._counted = taken
            self._backoff.reset()
        lower = f"the broker grants a lower QoS to {', '.join(self._lower)}" if self._lower else ""
        if self._intake.has_waiting and not self._has_said_full:
            self._has_said_full = True
            logger.warning("route %s: %s", self._state.name, FULL)
        self._state.receive_note = FULL if self._intake.has_waiting else lower

    def _note_answer(self, packet: Suback | Unsuback) -> None:
        topic_filter, code = self._requests.pop(packet.packet_identifier), packet.reason_codes[0]
        if isinstance(packet, Unsuback):
            if code >= UNSPECIFIED_ERROR:  # asked again over the next connection
                self._subscribed.append(topic_filter)
                logger.warning("route %s: %r is not unsubscribed: %s", self._state.name, topic_filter, describe(code))
        elif code >= UNSPECIFIED_ERROR:
            self._refused.append(f"{topic_filter!r} ({describe(code)})")
        else:
            self._subscribed.append(topic_filter)
            if code < QOS:
                self._lower.append(f"{topic_filter!r} (QoS {code})")
        self._note_answered()

    def _note_answered(self) -> None:
        if not self._requests and not self._are_answered.done():
            self._are_answered.set_result(None)

    def _tell(self) -> None:
        """Says which subscriptions the broker does not serve as asked."""
        if self._refused:
            self._state.receive_problem = f"the broker does not let the route subscribe to {', '.join(self._refused)}"
            self._state.note_error(self._state.receive_problem)
            logger.warning("route %s: %s", self._state.name, self._state.receive_problem)
        self._note_taken()
        if self._lower:
            logger.warning("route %s: %s", self._state.name, self._state.receive_note)
