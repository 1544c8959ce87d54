"""What the next broker's acknowledgements mean for a route's messages: taken over, to be sent again, or refused."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable

from gateway.delivery import Sender
from gateway.store import AckBatch, AckOrder, MessageLog
from uplink.connect.reading import Step
from uplink.connect.remote import Remote
from uplink.delivery.statements import Statements
from uplink.delivery.window import RouteWindow
from uplink.queue.route_queue import RouteQueue
from uplink.queue.standing import Standing
from uplink.refusals import TooManyRefused
from wire.backoff import Backoff
from wire.bulk.connection import Acknowledgements
from wire.codec.packets import Puback, Pubcomp, Pubrec
from wire.packet_types import PUBACK, PUBCOMP, PUBREC
from wire.reasons import (
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED,
    QUOTA_EXCEEDED,
    TOPIC_NAME_INVALID,
    UNSPECIFIED_ERROR,
    describe,
)

ADVICE = {NOT_AUTHORIZED: "; another Holdfast gateway needs rules to publish its topic and to identify its origin"}
NO_SUBSCRIBER = "no client at the broker has subscribed to a message [needs_subscriber]"
REFUSES_TOPIC = (NOT_AUTHORIZED, TOPIC_NAME_INVALID)

logger = logging.getLogger(__name__)


class Answers:
    """Acts on the acknowledgements of one connection.

    - Success: the broker has custody, and the cursor moves.
    - 0x97 Quota exceeded, and 0x10 No matching subscribers where the route needs one: the broker does not have the
      message. All messages answered so go again after a pause, in their order. But a gateway answers 0x10 too if the
      last subscriber has gone while the message was on its way: what is not always carried has found its end then.
    - Other reason codes from 0x80 on: the broker will never take the message. It is set aside, and the rest goes on.
      No statement goes to the topic of a refused one for a day.
      Of a batch the halves go instead, until the message is found. But if the broker refuses the topic of the batches
      (0x87, 0x90), the route stands: that says nothing about the messages.

    Args:
        window: the messages in flight.
        sender: sends them again.
        remote: the line.
        log: the gateway's store.
        queue: what waits for the route; its state says why the route stands.
        statements: which statements the broker takes.
        backoff: the waits between connections, which begin anew with the first acknowledgement.
        answered: called when the broker answers messages.

    ``has_answer`` says whether the broker has answered a message over this connection.
    """

    def __init__(
        self,
        window: RouteWindow,
        sender: Sender,
        remote: Remote,
        log: MessageLog,
        queue: RouteQueue,
        statements: Statements,
        backoff: Backoff,
        answered: Callable[[], None],
    ) -> None:
        self._window = window
        self._sent = window.sent
        self._sender = sender
        self._remote = remote
        self._log = log
        self._queue = queue
        self._statements = statements
        self._looking: set[asyncio.Task[None]] = set()
        self._refusals = queue.refusals
        self._outlet = queue.lanes.outlet
        self._state = queue.state
        self._backoff = backoff
        self._answered = answered
        self.has_answer = False
        self._needs_subscriber = queue.settings.needs_subscriber
        self._acks = AckBatch(log.hand_in, AckOrder(remote.flush, remote.close))
        self._standing = Standing(queue.state, backoff, window.pause, self._go_on)
        self._again: list[int] = []
        self._unwanted = queue.unwanted
        for packet_identifier in list(self._unwanted):
            if window.session_present and packet_identifier in window.outgoing.flows:
                window.protocol.pubrel(packet_identifier)
            else:
                self._unwanted.discard(packet_identifier)

    def handle(self, packet: Step) -> None:
        """Acts on what the broker sent."""
        if isinstance(packet, Acknowledgements | Puback | Pubrec):
            self.has_answer = True
            self._answered()
        if isinstance(packet, Acknowledgements):
            self._acknowledge(packet.packet_type, packet.identifiers)
        elif isinstance(packet, Puback | Pubrec):
            code = packet.reason_code
            if code == QUOTA_EXCEEDED:
                self._send_later([packet.packet_identifier], f"the broker says {describe(code)}")
            elif code == NO_MATCHING_SUBSCRIBERS and self._has_to_wait(packet):
                if self._queue.link.is_to_gateway:
                    looking = asyncio.get_running_loop().create_task(self._wait_if_always_carried(packet))
                    self._looking.add(looking)
                    looking.add_done_callback(self._looking.discard)
                else:
                    self._wait_for_subscriber(packet)
            elif code >= UNSPECIFIED_ERROR:
                self._refuse(packet)
            else:
                self._acknowledge(packet.TYPE, [packet.packet_identifier])
        elif isinstance(packet, Pubcomp):
            self._acknowledge(PUBCOMP, [packet.packet_identifier])

    def stop(self) -> None:
        """The connection has ended: its sender hands back what is not acknowledged."""
        for looking in self._looking:
            looking.cancel()
        self._standing.stop()

    def set_aside(self, packet_identifier: int, reason: str) -> None:
        """Sets a message aside over which the broker has ended the connection."""
        if self._window.give_up_copy(packet_identifier):
            self._state.note_error(f"a message that is no new one: {reason}")
            return
        try:
            self._keep_aside(packet_identifier, reason)
        except TooManyRefused as error:
            self._state.stands = str(error)
            return
        if flow := self._window.outgoing.flows.get(packet_identifier):
            self._window.outgoing.pass_over(flow)  # the broker may have noted its packet identifier
        else:
            self._window.handle_pubacks([packet_identifier])

    def _keep_aside(self, packet_identifier: int, reason: str) -> None:
        """Keeps a message apart that the broker does not take. Raises TooManyRefused."""
        if topic := self._sent.statement_topic(packet_identifier):
            self._statements.note_refused(topic, reason)
        position, via = self._sent.place_of(packet_identifier)
        self._refusals.set_aside(position, reason, via)
        self._backoff.reset()
        self._sent.resent.pop(packet_identifier, None)

    async def settle(self) -> None:
        """Waits until what was acknowledged is noted durably: the next connection may have another session."""
        await self._acks.settle()

    def _acknowledge(self, packet_type: int, packet_identifiers: list[int]) -> None:
        if packet_type == PUBCOMP and self._unwanted:
            unwanted = [one for one in packet_identifiers if one in self._unwanted]
            packet_identifiers = [one for one in packet_identifiers if one not in self._unwanted]
            self._unwanted.difference_update(unwanted)
            if unwanted:
                self._send_later(unwanted, NO_SUBSCRIBER)
        if not packet_identifiers:
            return
        self._standing.note_success()
        if packet_type == PUBACK:
            if self._statements.are_refused:
                self._statements.note_taken([self._sent.statement_topic(one) for one in packet_identifiers])
            self._window.handle_pubacks(packet_identifiers)
        elif packet_type == PUBREC:
            self._window.handle_pubrecs(packet_identifiers, self._acks.add)
            self._acks.end()
        else:
            self._window.handle_pubcomps(packet_identifiers)
        if packet_type != PUBREC:
            self._outlet.note_acknowledged(len(packet_identifiers))

    def _has_to_wait(self, packet: Puback | Pubrec) -> bool:
        if not self._needs_subscriber or self._sent.is_retained(packet.packet_identifier):
            return False
        return not self._sent.statement_topic(packet.packet_identifier)

    async def _wait_if_always_carried(self, packet: Puback | Pubrec) -> None:
        try:
            message = await self._log.read_one(self._sent.place_of(packet.packet_identifier)[0])
        except sqlite3.Error as error:
            self._remote.close(f"a message that no client wants cannot be read: {error}")
            return
        if message is not None and self._queue.link.is_always(message):
            self._wait_for_subscriber(packet)
        else:
            self._acknowledge(packet.TYPE, [packet.packet_identifier])

    def _wait_for_subscriber(self, packet: Puback | Pubrec) -> None:
        if isinstance(packet, Puback):
            self._send_later([packet.packet_identifier], NO_SUBSCRIBER)
            return
        self._standing.begin(NO_SUBSCRIBER)
        self._unwanted.add(packet.packet_identifier)
        self._window.protocol.pubrel(packet.packet_identifier)  # its flow ends, and begins again after the pause

    def _send_later(self, packet_identifiers: list[int], why: str) -> None:
        resent = [one for one in packet_identifiers if self._sent.resent.pop(one, None)]  # these are still due
        owed = [one for one in packet_identifiers if self._sent.is_copy(one)]
        owed = [one for one in owed if one not in self._window.outgoing.flows]  # they go later
        self._window.forget([*resent, *owed])
        self._again += [one for one in packet_identifiers if one not in resent and one not in owed]
        self._outlet.slow_down()
        self._standing.begin(why)

    def _go_on(self) -> None:
        again, self._again = self._again, []
        self._sender.send_again(again)
        self._refusals.is_due.set()
        self._window.go_on()

    def _refuse(self, packet: Puback | Pubrec) -> None:
        code, packet_identifier = packet.reason_code, packet.packet_identifier
        if code in REFUSES_TOPIC and self._sent.is_batch(packet_identifier):
            self._send_later([packet_identifier], f"the broker refuses the topic of the batches: {describe(code)}")
            return
        if self._window.give_up_copy(packet_identifier):
            self._state.note_error(f"the broker refuses a message that is no new one: {describe(code)}")
            return
        if self._sent.split(packet_identifier):
            self._backoff.reset()
            if isinstance(packet, Puback):
                self._window.handle_pubacks([packet_identifier])
            return
        reason = f"the broker refused it: {describe(code)}{ADVICE.get(code, '')}"
        try:
            self._keep_aside(packet_identifier, reason)
        except TooManyRefused as error:
            self._state.stands = str(error)
            self._remote.close(str(error))
            return
        if isinstance(packet, Puback):
            self._window.handle_pubacks([packet_identifier])
        else:
            self._window.handle_pubcomps([packet_identifier])
        self._outlet.note_acknowledged(1)
