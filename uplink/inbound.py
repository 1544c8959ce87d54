"""What a route's broker sends down: stored and synced like a client's messages, and acknowledged only then.

The broker keeps a message until it is acknowledged, and sends it again over the next connection. So while the store is
full, messages wait without an acknowledgement, in bounded memory. Beyond that the intake forgets what comes, and the
route begins a new connection when there is room. It goes on reading meanwhile: acknowledgements of what goes up make
room.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial

from gateway.delivery import Window
from gateway.links import BadAnnouncement, BadLinkStates, Conditions
from gateway.routes import Intake, PublishAnswers, PublishRules, Realtime, Services
from gateway.store import AckOrder, qos2
from uplink.config.route import RECEIPTS, RouteConfig
from uplink.connect.connector import Accepted
from uplink.connect.notes import RouteNotes
from uplink.connect.reading import Step
from uplink.proxy.dialling import DiallingEnd
from uplink.proxy.requests import Asked, Requests
from uplink.queue.route_queue import RouteQueue
from wire.backoff import Backoff
from wire.bulk.connection import Acknowledgements
from wire.bulk.reader import Publishes
from wire.codec.packets import Publish, Pubrel, Suback, Unsuback
from wire.packet_types import PUBREL
from wire.receipt import RECEIPT_TOPICS
from wire.reserved import RESERVED_TOPICS

FULL = "what the broker sends waits: the store, the queue of a subscriber, or what a topic filter may have, is full"
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
        end: this end of the link, if the broker is a neighbour.
    """

    def __init__(
        self,
        services: Services,
        config: RouteConfig,
        queue: RouteQueue,
        notes: RouteNotes,
        accepted: Accepted,
        backoff: Backoff,
        end: DiallingEnd | None = None,
    ) -> None:
        self._end = end
        self._services = services
        self._config = config
        self._queue = queue
        self._notes = notes
        client, self._remote, self._connack, _ = accepted
        self._backoff = backoff
        order = AckOrder(self._answered, self._remote.close)
        self._answers = PublishAnswers(client, queue.publisher, services.log, order)
        permissions = services.rights_of_route(config.local_user, queue.publisher.client_id)
        self._intake = Intake(
            services,
            self._answers,
            PublishRules(services.publishing, self._answers, permissions, self._remote.reading.topics),
            copies=services.copies.of(queue.publisher.client_id) if end is not None else None,
            realtime=Realtime.MARKED if queue.link.is_to_gateway else Realtime.NONE,
            conditions=None if queue.link.is_to_gateway or not config.incoming else Conditions(config.incoming),
            begin_again=partial(self._remote.close, AGAIN),
        )
        self._counted = 0  # of the messages that the intake has taken
        self._has_said_full = False
        self._subscribed: dict[str, None] = {}  # topic filters of the session
        at_once = 1 if end is None else end.asked.at_once
        self.requests = Requests(config.name, client, self._remote, at_once, self._note_answer)
        self._is_begun = False
        self._following: asyncio.Task[None] | None = None  # what the neighbour wants newly
        self._is_stopping = False
        self._others: list[Step] = []
        self._hand_on: Callable[[Step], None] = self._others.append

    async def begin(self) -> None:
        """Subscribes, and unsubscribes what is no longer configured. Raises LinkDown, sqlite3.Error.

        Before this nothing else may be sent: its packet identifier could be that of a message which goes again.
        """
        note, is_present = self._notes.note, self._connack.session_present
        if not is_present and self._queue.publisher.incoming:
            await self._services.log.submit([qos2.forget_incoming(self._queue.publisher.client_id)])
            self._queue.publisher.incoming.clear()
        former = (*note.subscribed, *self._queue.link.asked.filters) if is_present else ()
        note.subscribed = tuple(dict.fromkeys([*former, *self._config.subscribed]))
        await self._notes.save()
        self._remote.reading.may_take = self._may_take
        self._remote.reading.take(self._handle)
        if self._end is not None:
            self._end.begin(self.requests, session_present=is_present, noted=former)
        else:
            wanted = self._config.subscribed
            self._subscribed = dict.fromkeys(former)
            # No broker keeps all receipts for a session that is away, and all are retained.
            self.requests.subscribe([one for one in wanted if one != RECEIPTS])
            self.requests.subscribe([one for one in wanted if one == RECEIPTS], is_anew=True)
            self.requests.unsubscribe([one for one in former if one not in wanted])
            self.requests.flush()
        await self.requests.wait_for_answers()
        if self._end is not None:
            self._end.asked.note_begun()
        await self._save_subscribed()
        if self._config.direction == "in":
            self._backoff.reset()
        self._tell()
        self._is_begun = True

    def use(self, window: Window) -> None:
        """Keeps messages of this window from using the packet identifiers of requests."""
        self.requests.reserve = lambda identifier: window.await_pubacks([identifier], _ignore)
        self.requests.release = lambda identifier: window.forget([identifier])

    def pass_others_to(self, handle: Callable[[Step], None]) -> None:
        """Hands on what is no message, from the beginning of the connection on: acknowledgements of what goes up."""
        self._hand_on = handle
        for step in self._others:
            handle(step)
        self._others = []
        self._remote.flush()

    async def stop(self) -> None:
        """Takes nothing more. What came is written, and acknowledged if the connection still stands."""
        if self._end is not None:
            self._end.end()
        if not self._remote.ended.done():
            self._remote.reading.postpone()
        if self._following is not None:  # it is done in any case: memory has what the store has
            self._is_stopping = True
            await asyncio.wait({self._following})
        self._intake.stop()
        await self._answers.settle()
        self._queue.state.receive_problem = self._queue.state.receive_note = ""

    def _may_take(self, topics: Collection[str]) -> bool:
        """The access rules may have changed since the topics were learned."""
        known = self._remote.reading.topics
        known.keep_to(self._services.shared.access_control.access)
        return bool(known) and self._intake.may_take(topics)

    def _handle(self, step: Step) -> None:
        """Acts on what the broker sent, or hands it on."""
        if isinstance(step, Publish) and self._end is not None and step.topic.startswith(RESERVED_TOPICS):
            self._hear(step)
        elif isinstance(step, Publish) and f"{step.topic}/".startswith(RECEIPT_TOPICS):
            self._hear_receipt(step)
        elif isinstance(step, Publish):
            self._intake.handle_publish(step)
        elif isinstance(step, Publishes):
            self._intake.take_publishes(step)
        elif isinstance(step, Pubrel):
            self._answers.release([step.packet_identifier])
        elif isinstance(step, Acknowledgements) and step.packet_type == PUBREL:
            self._answers.release(step.identifiers)
        elif isinstance(step, Suback | Unsuback):
            self.requests.handle(step)
        else:
            self._hand_on(step)
            return
        self._remote.reading.read_after(self._end_acks)

    async def _end_acks(self) -> None:
        """Submits the work of the packets that came together; returns when more may be read."""
        self._answers.end()
        self._note_taken()
        await self._services.log.writer.wait_for_room()
        await self._intake.wait_for_pace()

    def _answered(self) -> None:
        self._remote.flush()
        self._note_taken()

    def _note_taken(self) -> None:
        taken = self._intake.taken
        if taken > self._counted:
            self._queue.state.received_messages += taken - self._counted
            self._counted = taken
            self._backoff.reset()
        if self._intake.has_waiting and not self._has_said_full:
            self._has_said_full = True
            logger.warning("route %s: %s", self._queue.state.name, FULL)
        self._queue.state.receive_note = FULL if self._intake.has_waiting else self.requests.remark

    def _hear_receipt(self, packet: Publish) -> None:
        """Takes what the tables say of the route's messages, and hands on what counts.

        Its topic name is never learned, so that no receipt comes in a batch. A broker of MQTT 3.1.1 does not say of a
        new one that it is retained.
        """
        keeping = self._queue.keeping
        if keeping is not None and (problem := keeping.hear(packet.topic, packet.payload)):
            self._queue.state.note_error(f"a receipt on {packet.topic!r}: {problem}")
            self._answers.accept_unstored(packet)
        else:
            self._intake.take_newest(packet)

    def _hear(self, packet: Publish) -> None:
        """Takes what the neighbour tells of its network."""
        assert self._end is not None
        try:
            rest = self._end.hear(packet.topic, packet.payload)
        except (BadAnnouncement, BadLinkStates) as error:
            self._remote.close(f"what the neighbour tells at {packet.topic!r}: {error}")
        else:
            if rest is not None:
                self._remote.reading.postpone()
                self._following = asyncio.get_running_loop().create_task(self._follow(rest, packet.topic))

    async def _follow(self, rest: Coroutine[None, None, None], topic: str) -> None:
        try:
            await rest
        except BadAnnouncement as error:
            self._remote.close(f"what the neighbour tells at {topic!r}: {error}")
            return
        if not self._is_stopping and not self._remote.ended.done():
            self._remote.reading.take(self._handle)

    def _note_answer(self, asked: Asked, granted: Sequence[str]) -> None:
        if self._end is not None:
            self._end.asked.note_answer(asked, granted, self.requests.refused)
            if self._is_begun and (problem := self.requests.problem_with(asked.topic_filters)):
                logger.warning("route %s: %s", self._queue.state.name, problem)
        elif asked.is_subscribe:
            self._subscribed.update(dict.fromkeys(granted))
        else:  # one that is refused is asked for again over the next connection
            for topic_filter in granted:
                self._subscribed.pop(topic_filter, None)

    async def _save_subscribed(self) -> None:
        """Notes which filters the session of an ordinary broker may have. Raises sqlite3.Error."""
        asked = list(self._queue.link.asked.filters)
        if self._end is None:
            self._notes.note.subscribed = tuple(self._subscribed)
        elif self._end.theirs is None:
            self._notes.note.subscribed = tuple(self._end.asked.session.all())
        else:
            self._notes.note.subscribed = ()
        await self._notes.save()
        self._queue.link.asked.remove(asked)

    def _tell(self) -> None:
        """Says which subscriptions the broker does not serve as asked. It is no fault here if a neighbour refuses what
        clients want.
        """
        configured = (*self._config.subscribed, *self._services.config.network.summary)
        self._queue.state.receive_problem = self.requests.problem_with(configured)
        if problem := self.requests.problem_with(self.requests.refused):
            self._queue.state.note_error(problem)
            logger.warning("route %s: %s", self._queue.state.name, problem)
        self._note_taken()
        if self.requests.remark:
            logger.warning("route %s: %s", self._queue.state.name, self._queue.state.receive_note)


def _ignore(_: list[int]) -> None:
    """A request is no message: its answer does not move a cursor."""
