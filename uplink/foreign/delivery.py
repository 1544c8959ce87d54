"""What a route exports: cursor → parcel → the other system → its answer → cursor.

A message stays in the gateway's store until the other system has custody. What is not answered when the connection ends
is handed back to the cursor, and goes again over the next one, in order and with the same identity.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial

from gateway.routes import Message, Signal
from gateway.store import Delivery, MessageLog, Refused, drops
from uplink.foreign.config import ForeignConfig
from uplink.foreign.form import Form
from uplink.foreign.names import NoName
from uplink.foreign.transport import Answer, CannotCarry, Transport, Verdict
from uplink.queue.keeping import AGAIN_PART, Keeping
from uplink.queue.route_queue import RouteQueue
from uplink.queue.standing import Standing
from uplink.refusals import TooManyRefused
from uplink.shape import CannotShape
from wire.backoff import Backoff

FETCH_MOST = 128

logger = logging.getLogger(__name__)


class Export:
    """Sends a route's messages over one connection.

    Args:
        config: the route.
        queue: what waits for it.
        log: the gateway's store.
        transport: the connection, already made.
        form: makes parcels of messages.
        backoff: the waits between connections, which begin anew when a message is taken.
    """

    def __init__(
        self,
        config: ForeignConfig,
        queue: RouteQueue,
        log: MessageLog,
        transport: Transport,
        form: Form,
        backoff: Backoff,
    ) -> None:
        self._config = config
        self._queue = queue
        self._log = log
        self._transport = transport
        self._form = form
        self._state = queue.state
        self._outlet = queue.lanes.outlet.for_sender
        self._news, self._room = Signal(), Signal()
        self._unanswered: dict[int, Delivery] = {}
        self._beside: set[int] = set()  # the positions of messages in flight that are not the cursor's
        self._left: dict[int, set[int]] = {}  # by flow: the positions of its messages that were not taken yet
        self._taken: list[int] = []  # whose acknowledgement the cursor is told of soon
        self._again: list[int] = []  # that the other system may take later
        self._may_go = Signal()
        self._may_go.set()
        self._standing = Standing(queue.state, backoff, self._may_go.clear, self._go_on)
        self._is_stopped = False

    async def run(self) -> None:
        """Sends what waits, for ever. Raises TransportDown, TooManyRefused, sqlite3.Error."""
        await self._finish_flows()
        self._outlet.wake_with(self._news.set)
        while True:
            self._news.clear()
            await self._wait_for_room()
            most = min(FETCH_MOST, self._config.inflight_window - self._in_flight)
            deliveries = await self._outlet.fetch_now(most)
            for delivery in deliveries:
                self._unanswered[delivery.packet_identifier] = delivery
            for delivery in deliveries:
                await self._send(delivery)
            if not deliveries:
                await self._transport.flush()
                await self._news.wait()

    async def resend(self) -> None:
        """Sends again what an operator wants, and of the earlier flows what was not taken, for ever.

        Raises TransportDown, sqlite3.Error.
        """
        refusals = self._queue.refusals
        while True:
            await refusals.send_due(self._wait_for_room, self._send_again, self._beside)
            await self._transport.flush()
            await refusals.is_due.wait()
            await self._finish_flows()

    async def _send_again(self, one: Refused, message: Message) -> None:
        await self._send_beside(one.position, message, partial(self._note_resent, one))

    async def send_passed_over(self, keeping: Keeping) -> None:
        """Sends what the tables have passed over again, for ever. Raises TransportDown, sqlite3.Error."""
        most = max(1, self._config.inflight_window // AGAIN_PART)
        while True:
            async with contextlib.aclosing(keeping.passed_over()) as found:
                async for position, message in found:
                    while len(self._beside) >= most:
                        await self._transport.flush()
                        self._room.clear()
                        await self._room.wait()
                    await self._wait_for_room()
                    if position not in self._beside and not 0 < message.expires_ms <= time.time() * 1000:
                        self._state.unproven_sent += 1
                        await self._send_beside(position, message, _ignore)
            await self._transport.flush()
            await keeping.is_due.wait()

    def stop(self) -> None:
        """The connection has ended: what is not answered goes over the next one."""
        self._is_stopped = True
        self._outlet.wake_with(None)
        self._standing.stop()
        self._tell_cursor()
        self._state.retries += len(self._unanswered)
        self._outlet.redeliver(list(self._unanswered))
        self._unanswered.clear()

    @property
    def _in_flight(self) -> int:
        return len(self._unanswered) + len(self._beside)

    async def _wait_for_room(self) -> None:
        """Waits until more may be sent. A full window is half empty then, so that many are fetched at a time."""
        await self._may_go.wait()
        if self._in_flight < self._config.inflight_window:
            return
        await self._transport.flush()
        while self._in_flight > self._config.inflight_window // 2:
            self._room.clear()
            await self._room.wait()
            await self._may_go.wait()

    async def _send(self, delivery: Delivery) -> None:
        message = delivery.message
        if not delivery.dup and 0 < message.expires_ms <= time.time() * 1000:
            self._log.drop(drops.EXPIRED, self._queue.consumer, message)
            self._finish(delivery.packet_identifier)
            return
        answered = partial(self._note_answer, delivery)
        try:
            await self._transport.send(self._form.parcel(message, self._log.hop), answered)
        except (NoName, CannotCarry) as error:
            answered(Answer(Verdict.NEVER, str(error)))

    def _note_answer(self, delivery: Delivery, answer: Answer) -> None:
        """The other system has said something of a message of the cursor."""
        number = delivery.packet_identifier
        if self._is_stopped or number not in self._unanswered:
            return
        if answer.verdict not in (Verdict.TAKEN, Verdict.LATER):
            answer = self._give_up(delivery.position, delivery.message, answer)
        if answer.verdict is Verdict.LATER:
            self._again.append(number)
            self._standing.begin(answer.reason)
            return
        if answer.verdict is Verdict.TAKEN:
            self._standing.note_success()
        self._finish(number)

    def _finish(self, number: int) -> None:
        """Nothing more is to be done for a message of the cursor."""
        del self._unanswered[number]
        if not self._taken:
            asyncio.get_running_loop().call_soon(self._tell_cursor)
        self._taken.append(number)

    def _tell_cursor(self) -> None:
        taken, self._taken = self._taken, []
        if taken:
            self._outlet.acknowledge_all(taken)
            self._room.set()

    def _give_up(self, position: int, message: Message, answer: Answer) -> Answer:
        """Sets a message aside, or drops it, as the configuration says.

        Returns the answer, or "later" if no more messages can be set aside.
        """
        keeps = self._config.preserve_undelivered
        if keeps == "always" or (keeps == "receivers" and answer.verdict is Verdict.UNDELIVERED):
            try:
                self._queue.refusals.set_aside(position, answer.reason, "")
            except TooManyRefused as error:
                return Answer(Verdict.LATER, str(error))
        else:
            logger.warning("route %s: a message is dropped: %s", self._state.name, answer.reason)
            self._log.drop(drops.REJECTED, self._queue.consumer, message)
        return answer

    def _go_on(self) -> None:
        """Sends what was not taken, before anything new."""
        again, self._again = self._again, []
        for number in again:
            self._unanswered.pop(number, None)
        self._outlet.redeliver(again)
        self._room.set()
        self._queue.refusals.is_due.set()
        self._may_go.set()
        self._news.set()

    async def _send_beside(self, position: int, message: Message, answered: Callable[[Answer], None]) -> None:
        """Sends a message that is not the cursor's."""
        self._beside.add(position)

        def note(answer: Answer) -> None:
            self._beside.discard(position)
            self._room.set()
            if self._is_stopped:
                return
            if answer.verdict is Verdict.LATER:
                self._standing.begin(answer.reason)
            elif answer.verdict is Verdict.TAKEN:
                self._standing.note_success()
            answered(answer)

        try:
            shaped = self._queue.lanes.shaping.shape(message)
            await self._transport.send(self._form.parcel(shaped, self._log.hop), note)
        except (NoName, CannotCarry, CannotShape) as error:
            note(Answer(Verdict.NEVER, str(error)))

    def _note_resent(self, one: Refused, answer: Answer) -> None:
        refusals = self._queue.refusals
        if refusals.due.get(one.position) is not one or answer.verdict is Verdict.LATER:
            return
        if answer.verdict is Verdict.TAKEN:
            self._log.defer(refusals.release(one))
        else:
            refusals.set_aside(one.position, answer.reason, "")

    async def _finish_flows(self) -> None:
        """Ends the QoS 2 flows that the route had while it led to an MQTT broker: what that did not have goes now."""
        outgoing = self._queue.outgoing
        released, begun = await outgoing.resume()
        outgoing.complete([flow.packet_identifier for flow in released])
        for flow in begun:
            found = await outgoing.messages_of(flow) if flow.ranges else []
            if not flow.ranges and not flow.topic and (message := await outgoing.message_of(flow)) is not None:
                found = [(flow.position, message)]
            there = {position for position, _ in found}
            left = self._left.setdefault(flow.packet_identifier, there)
            left &= there
            if not left:
                outgoing.complete([flow.packet_identifier])
            for position, message in found:
                await self._wait_for_room()
                if position not in left or position in self._beside:
                    continue
                note = partial(self._note_flow, flow.packet_identifier, left, position, message)
                await self._send_beside(position, message, note)

    def _note_flow(self, identifier: int, left: set[int], position: int, message: Message, answer: Answer) -> None:
        if answer.verdict not in (Verdict.TAKEN, Verdict.LATER):
            answer = self._give_up(position, message, answer)
        if answer.verdict is Verdict.LATER:
            return  # it goes after the pause
        left.discard(position)
        if not left:
            self._queue.outgoing.complete([identifier])


def _ignore(_: Answer) -> None:
    """Only a receipt says that a message has arrived which goes again."""
