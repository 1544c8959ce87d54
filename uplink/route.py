"""A route: a gateway sends its stored messages to the next broker, which takes over custody one by one."""

import asyncio
import logging
import sqlite3
from collections.abc import Coroutine
from functools import partial
from typing import Any

from gateway.delivery import Sender
from gateway.routes import Services
from gateway.store import MessageLog
from uplink.config.route import RouteConfig
from uplink.connect.connections import Connections, wait_until
from uplink.connect.connector import Accepted, Connector, LinkDown
from uplink.connect.notes import RouteNotes
from uplink.connect.remote import MAXIMUM_PACKET_SIZE, Remote
from uplink.delivery.answers import Answers
from uplink.delivery.passed_over import PassedOver
from uplink.delivery.resend import Resend
from uplink.delivery.statements import Statements
from uplink.delivery.suspicion import Suspicion
from uplink.delivery.window import RouteWindow
from uplink.inbound import Inbound
from uplink.proxy.dialling import DiallingEnd
from uplink.queue.route_queue import RouteQueue
from wire.backoff import Backoff
from wire.bulk.connection import BulkClientConnection
from wire.codec.packets import MQTT_5
from wire.errors import WireError
from wire.hops import HOPS_PROPERTY
from wire.identity import find_user_property

QOS_0_ONLY = "the broker takes only messages of QoS 0, so it acknowledges none"
NO_BATCHES = 'the broker speaks MQTT 3.1.1, and batches need MQTT 5 [framing = "batch"]'
NO_RECEIVING = "the broker speaks MQTT 3.1.1, over which the route's own messages would come back [direction, until]"
UNFIT = (QOS_0_ONLY, NO_BATCHES, NO_RECEIVING)
"""Why a broker cannot serve a route at all."""

logger = logging.getLogger(__name__)


class Route:
    """Takes messages from the log by a durable cursor, and moves it as the next broker acknowledges them.

    After a loss the session resumes: everything unacknowledged goes out again in order, with its first packet
    identifiers and DUP set where the broker still has the session [MQTT-4.4.0-1]. QoS 2 messages are handed over
    exactly once as long as it has.

    Args:
        config: the route.
        gateway_name: the gateway that the route belongs to.
        log: the gateway's store.
        queue: what the store has for the route, if that is known.
        services: the gateway's parts, without which the route receives no messages.

    ``queue`` is what waits for the route; its state is up to date as far as its watch runs beside the route.
    """

    def __init__(
        self,
        config: RouteConfig,
        gateway_name: str,
        log: MessageLog,
        queue: RouteQueue | None = None,
        services: Services | None = None,
    ) -> None:
        self.config = config
        network = None if services is None else services.network
        self.queue = queue or RouteQueue(config.name, log, gateway_name, config.queue_settings(gateway_name), network)
        self._notes = RouteNotes(log.folder, config.name)
        self._services = services
        packet_size = MAXIMUM_PACKET_SIZE if services is None else services.config.limits.maximum_packet_size
        client_id = config.client_id(gateway_name)
        self._end: DiallingEnd | None = None
        if config.neighbour is not None and services is not None:
            copies = services.copies.of(self.queue.publisher.client_id)
            self._end = DiallingEnd(
                config, client_id, services.network, self.queue, log.counters, lambda: self.problem, copies
            )
        link = self._end.properties if self._end is not None and self._end.expects_gateway else None
        self._connector = Connector(config, client_id, self._notes, self.queue, packet_size, link)
        self._log = log
        self._backoff = Backoff(config.backoff_shortest_ms, config.backoff_longest_ms)
        self._suspicion = Suspicion()
        queue, not_made = self.queue, "" if config.states_every_s else self.queue.lanes.numbers[0].topic
        self._statements = Statements(log, queue.consumer, queue.refusals, queue.state, not_made)
        losses = (LinkDown, sqlite3.Error)
        self._connections = Connections(f"{config.name} to {config.broker}", self.queue.state, self._backoff, *losses)

    @property
    def link(self) -> DiallingEnd | None:
        """This end of the link, None if the broker is no neighbour."""
        return self._end

    @property
    def problem(self) -> str:
        """Why no connection may be made, or why the newest one failed or ended; "" since the next one."""
        return self._connector.waits_for or self._connections.problem

    @property
    def waits_for(self) -> str:
        """Why no connection may be made now, as is configured; "" if one may."""
        return self._connector.waits_for

    async def run(self) -> None:
        """Serves for ever: connects, forwards, and after each loss waits and connects again."""
        if self._end is not None:
            self._end.asked.open()
        try:
            await self._connections.serve(self._serve)
        finally:
            await self._connector.close()

    async def _serve(self) -> None:
        """One connection, from its start to the LinkDown at its end."""
        accepted = await self._connector.connect()
        client, remote, connack, _ = accepted
        inbound = None
        try:
            await self._check_accepted(client)
            if why := await self._connector.session.settle(client, remote, connack):
                remote.close(why)
                raise LinkDown(why)
            if self._end is not None:
                self._end.check(connack)
            client.send_singly(is_on=self._suspicion.is_alone)
            self.queue.begin_link(self._end.theirs if self._end else None)
            await self._statements.load()
            await self.queue.lanes.begin(client)
            inbound = self._inbound(accepted)
            if inbound is not None:
                await inbound.begin()
            self._note_connected(accepted)
            if not connack.session_present:
                self.queue.link.owed.want_all()
            window = RouteWindow(
                client,
                remote,
                self._log,
                self.queue,
                self._statements,
                session_present=connack.session_present,
                next_hop=find_user_property(connack.properties, HOPS_PROPERTY) or "",
            )
            sender = self.queue.unqueued.sender = Sender(
                window, self._log, self.queue.lanes.outlet.for_sender, remote.close, self.queue.link.owed.cursor()
            )
            begun = partial(self._note_answer, client)
            answers = Answers(
                window,
                sender,
                remote,
                self._log,
                self.queue,
                self._statements,
                self._backoff,
                begun,
            )
            if inbound is None:
                remote.reading.take(answers.handle)
            else:
                inbound.use(window)
                inbound.pass_others_to(answers.handle)
            try:
                resend = Resend(window, sender, self._log, self.queue, self._statements)
                works = [resend.run(), self._statements.run(), self.queue.link.send_retained(sender)]
                if (keeping := self.queue.keeping) is not None:
                    works.append(PassedOver(window, sender, keeping, self.queue).run())
                works += [lane.run(self._statements.wait_for) for lane in self.queue.lanes.numbers]
                await _work_until(remote.ended, works)
            finally:
                self._judge(client, remote, window, answers)
                answers.stop()
                sender.stop()
                await answers.settle()
        finally:
            self.queue.state.connected, self.queue.unqueued.sender = False, None
            self.queue.link.end()
            self.queue.state.server = ""
            try:
                if inbound is not None:
                    await inbound.stop()
            finally:
                remote.close("the route ends")
        raise LinkDown(remote.ended.result())

    def _note_answer(self, client: BulkClientConnection) -> None:
        """The broker has answered messages."""
        was_alone = self._suspicion.is_alone
        if due := self._suspicion.note_answer():
            self.queue.refusals.send_again(due)
        if was_alone and not self._suspicion.is_alone:
            client.send_singly(is_on=False)
            self.queue.lanes.outlet.begin(lambda: client.send_quota)

    def _judge(self, client: BulkClientConnection, remote: Remote, window: RouteWindow, answers: Answers) -> None:
        """Sets the message aside over which the broker has ended the connection, if it is clear which one that is."""
        if remote.ended_by is None:
            return
        unanswered = client.unanswered()
        if any(map(window.sent.is_batch, unanswered)):  # its messages cannot be told apart
            return
        positions = [window.sent.place_of(one)[0] for one in unanswered]
        is_statement = bool(unanswered) and bool(window.sent.statement_topic(unanswered[0]))
        if self._suspicion.note_end(
            remote.ended_by, positions, has_answer=answers.has_answer, is_statement=is_statement
        ):
            answers.set_aside(unanswered[0], f"the broker ends the connection over it: {remote.ended.result()}")

    def _inbound(self, accepted: Accepted) -> Inbound | None:
        """Returns what takes the broker's messages, None if the route neither has nor had subscriptions."""
        has_any = self.config.receives or self._notes.note.subscribed or self.queue.link.asked.filters
        if self._services is None or not has_any or accepted.client.protocol_level != MQTT_5:
            return None
        return Inbound(self._services, self.config, self.queue, self._notes, accepted, self._backoff, self._end)

    async def _check_accepted(self, client: BulkClientConnection) -> None:
        """Raises LinkDown if the broker may not have custody, or cannot serve the route."""
        state = self.queue.state
        if why := self._unfit(client):
            state.stands = why
            raise LinkDown(why)
        if state.stands in UNFIT:
            state.stands = ""
        if not self.queue.has_session:
            await self._log.routes.begin_session(self.queue.consumer)

    def _unfit(self, client: BulkClientConnection) -> str:
        """Returns why the broker cannot serve the route, "" if it can."""
        if not client.maximum_qos_peer:
            return QOS_0_ONLY
        if client.protocol_level == MQTT_5:
            return ""
        if self.config.receives:
            return NO_RECEIVING
        has_batches = self.queue.lanes.outlet.has_batches or any(
            flow.ranges for flow in self.queue.outgoing.flows.values()
        )
        return NO_BATCHES if has_batches else ""

    def _note_connected(self, accepted: Accepted) -> None:
        url = str(accepted.server)
        if not self.queue.state.stands:  # otherwise each attempt would log two lines
            is_present = accepted.connack.session_present
            logger.info("route %s to %s: connected, session present: %s", self.config.name, url, is_present)
            self._connections.problem = ""
        self._connections.note_connected(url)


async def _work_until(ended: asyncio.Future[str], works: list[Coroutine[Any, Any, None]]) -> None:
    """Works beside the sender, until the connection has ended. Raises LinkDown, sqlite3.Error."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(work) for work in works]
    try:
        await wait_until(ended, tasks)
    except (OSError, WireError) as error:
        raise LinkDown(str(error)) from error
    finally:
        for task in tasks:
            task.cancel()
