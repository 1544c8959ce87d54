"""Retained messages on their way to a client that has just subscribed [section 3.3.1.3]."""

import asyncio

from gateway.holdings import Account
from gateway.message import Message
from gateway.store import retained as stored
from gateway.store.delivery import Grant
from gateway.store.flows import Flow
from gateway.store.log import MessageLog
from gateway.store.retained import Owed
from gateway.window import Window

READ_MOST = 100  # messages in memory at once


class RetainedFeed:
    """Sends what a session is owed, for the time of one connection.

    Args:
        window: the way to the client.
        log: where the messages are.
        owed: the session's; what is acknowledged is taken out of it.
        account: the session's, on which these are.
    """

    def __init__(self, window: Window, log: MessageLog, owed: dict[Owed, None], account: Account) -> None:
        self._account = account
        self._window = window
        self._log = log
        self._owed = owed
        self._queue = list(owed)
        self._topics = dict.fromkeys(one.topic for one in owed)  # of what is being sent; a set takes more memory
        self._superseded: dict[str, None] = {}
        self._is_expecting = False

    def expect(self) -> None:
        """What a SUBSCRIBE matches is being looked for; ``add`` takes it."""
        self._is_expecting = True

    def add(self, owed: list[Owed]) -> None:
        """More is owed."""
        self._owed.update(dict.fromkeys(owed))
        self._queue += owed
        self._is_expecting = False
        self._topics.update(dict.fromkeys(one.topic for one in owed))
        self._superseded = {topic: None for topic in self._superseded if topic in self._topics}

    def supersede(self, message: Message) -> None:
        """A message goes to the client as it was published: an older one of its topic would come too late."""
        if message.retain and (self._is_expecting or message.topic in self._topics):
            self._superseded[message.topic] = None

    async def run(self) -> None:
        """Sends what is owed now. Raises OSError, sqlite3.Error, WireError."""
        while self._queue:
            batch = self._queue[:READ_MOST]
            del self._queue[:READ_MOST]
            await self._send(batch)
        self._topics.clear()
        if not self._is_expecting:
            self._superseded.clear()

    async def _send(self, batch: list[Owed]) -> None:
        found = await self._log.read_retained([owed.topic for owed in batch])
        self._queue[:0] = [owed for owed in batch if owed.topic not in found]
        batch = [owed for owed in batch if owed.topic in found]
        messages = {}
        for number, owed in enumerate(batch):
            position, message = found[owed.topic] or (0, None)
            if message is not None and position == owed.position and self._is_wanted(message):
                messages[number] = message
            else:
                self._settle(owed)
        flows = await self._begin_flows([(batch[number], message) for number, message in messages.items()])
        for number, message in messages.items():
            if flow := flows.get(id(batch[number])):
                await self._send_flow(flow, message)
            else:
                await self._send_one(batch[number], message)
        self._window.flush()

    async def _begin_flows(self, wanted: list[tuple[Owed, Message]]) -> dict[int, Flow]:
        chosen = [(owed, message) for owed, message in wanted if owed.qos == message.qos == 2]
        if not chosen:
            return {}
        outgoing, flows = self._window.outgoing, {}
        for owed, message in chosen:
            identifiers = (owed.identifier,) if owed.identifier else ()
            packet_identifier = self._window.next_identifier()
            flow = Flow(owed.session, packet_identifier, "", owed.position, message.topic, True, identifiers)
            flows[id(owed)] = flow
        numbers = [owed.number for owed, _ in chosen]

        def begun(failed: bool) -> None:
            if not failed:
                for owed, _ in chosen:
                    self._remove(owed)

        settle = stored.settle(numbers)
        await asyncio.shield(outgoing.begin(list(flows.values()), begun, settle, durable=chosen[0][0].number > 0))
        return flows

    async def _send_flow(self, flow: Flow, message: Message) -> None:
        await self._window.wait_for_room()
        if message.topic in self._superseded:
            self._window.outgoing.complete([flow.packet_identifier])
        else:
            self._window.publish_once(message, Grant(2, True, flow.identifiers), flow.packet_identifier)

    async def _send_one(self, owed: Owed, message: Message) -> None:
        grant = Grant(min(owed.qos, message.qos), True, (owed.identifier,) if owed.identifier else ())
        packet_identifier = None
        if grant.qos:
            await self._window.wait_for_room()
            packet_identifier = self._window.next_identifier()
        else:
            await self._window.wait_for_line()
        if message.topic in self._superseded:  # while it waited
            self._settle(owed)
        elif self._window.publish(message, grant, packet_identifier) and packet_identifier is not None:
            self._window.await_pubacks([packet_identifier], lambda _: self._settle(owed))
        else:
            self._settle(owed)

    def _remove(self, owed: Owed) -> None:
        del self._owed[owed]
        self._account.add(-owed.size)

    def _settle(self, owed: Owed) -> None:
        self._remove(owed)
        if owed.number:
            self._log.later(stored.settle([owed.number]))

    def _is_wanted(self, message: Message) -> bool:
        return (
            message.topic not in self._superseded
            and self._window.may_receive(message.topic)
            and self._window.is_wanted(message)
        )
