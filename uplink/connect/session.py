"""Whether the broker still has the session that a route knows.

A broker that has lost the session makes a new one at the next CONNECT, and says so in its CONNACK alone. That CONNACK
may be lost, or the gateway may be killed before it has noted it. Or another client comes under the route's client
identifier: mosquitto gives the route that client's session. Then a CONNACK says Session Present like any other, and the
route would take QoS 2 messages for delivered that the broker had received in the old session and has lost with it.

So the route marks each session, as a device does (`device.mqtt.session_probe`): the marks are subscriptions to topics
to which no client publishes. When a session is in doubt, the route sends an UNSUBSCRIBE for one mark, and the UNSUBACK
says whether the mark existed. That removes the mark, and the UNSUBACK may be lost, so there are several, and they are
asked for one after the other. A session is only marked when it is known that all released messages are its own. So
nothing has to be noted before a question, and a full disk keeps no route from it.
"""

import asyncio
import logging
import secrets
import sqlite3
from collections.abc import Callable
from functools import partial

from uplink.connect.notes import RouteNotes
from uplink.connect.reading import Step
from uplink.connect.remote import Remote
from uplink.queue.route_queue import RouteQueue
from wire.bulk.connection import BulkClientConnection
from wire.codec.packets import MQTT_5, Connack, Suback, Unsuback
from wire.errors import WireError
from wire.hops import HOPS_PROPERTY
from wire.identity import find_user_property
from wire.reasons import SUCCESS, UNSPECIFIED_ERROR

TOPIC = "holdfast/session"
MARKS = 4  # UNSUBACKs that may be lost in a row before messages go again that the broker has
FAILURES_MAX = 10  # connections in a row that end while they mark: then the broker may end them for it
ANSWER_DEADLINE_S = 10.0
LOST = "the broker has lost the session"

logger = logging.getLogger(__name__)


class RouteSession:
    """The route's session at its broker. A CONNECT makes it doubtful, and `settle` ends the doubt.

    A gateway recognizes messages by their identity, and needs no marks: after a CONNECT without an answer, messages go
    again. So they do to a broker that does not grant the marks; there some may come twice, with the same identity.

    Args:
        notes: the route's note, with the marks.
        queue: what waits for the route.
        client_id: the route's client identifier.

    Attributes:
        is_lost: whether the broker has a new session, which its CONNACK does not say.
    """

    def __init__(self, notes: RouteNotes, queue: RouteQueue, client_id: str) -> None:
        self.is_lost = False
        self._notes = notes
        self._queue = queue
        self._client_id = client_id
        self._is_settled = False
        self._was_settled = False  # before the newest CONNACK
        self._failures = 0
        self._is_refused = False

    def note_connect(self) -> None:
        """A CONNECT was sent: the broker may have made a new session."""
        self._was_settled, self._is_settled = self._is_settled, False

    async def settle(self, client: BulkClientConnection, remote: Remote, connack: Connack) -> str:
        """Ends the doubt, before anything else is sent. What the broker has lost goes again from its PUBLISH on.

        Returns why the connection has to end, "" if it goes on. Raises sqlite3.Error.
        """
        note, outgoing = self._notes.note, self._queue.outgoing
        may_mark = self._may_mark(client, connack)
        await outgoing.settle()
        released = self._queue.released_flows()
        if not connack.session_present:
            self.is_lost = True  # over the next connection too, if this one ends before all is settled
            self._queue.end_set_aside()
            await outgoing.begin_again(released)
            note.marks = ()
        elif may_mark and note.marks:
            is_in_doubt = not self._was_settled or released or self._queue.publisher.incoming
            if is_in_doubt and not await self._has_mark(client, remote):
                self.is_lost = not remote.ended.done()
                return LOST if self.is_lost else remote.ended.result()
        elif not self._was_settled and client.protocol_level == MQTT_5:
            await outgoing.begin_again(released)
        if may_mark and not note.marks:
            await self._mark(client, remote)
        if remote.ended.done():
            return remote.ended.result()
        self.is_lost, self._is_settled = False, True
        return ""

    def _may_mark(self, client: BulkClientConnection, connack: Connack) -> bool:
        is_gateway = find_user_property(connack.properties, HOPS_PROPERTY) is not None
        has_qos_2 = client.protocol_level == MQTT_5 and client.maximum_qos_peer == 2
        return has_qos_2 and not is_gateway and not self._is_refused and self._failures < FAILURES_MAX

    async def _has_mark(self, client: BulkClientConnection, remote: Remote) -> bool:
        """Whether the session has one of its marks; then it gets all again. False too if the connection ends."""
        for mark in self._notes.note.marks:
            answer = await self._ask(remote, partial(client.unsubscribe, [mark]))
            if answer is None:
                return False
            if answer.reason_codes[0] == SUCCESS:
                await self._mark(client, remote)
                return True
        return False

    async def _mark(self, client: BulkClientConnection, remote: Remote) -> None:
        """Subscribes to the marks, which are new ones for a new session."""
        note = self._notes.note
        name = f"{TOPIC}/{self._client_id}/{secrets.token_hex(4)}"
        marks = note.marks or tuple(f"{name}/{number}" for number in range(MARKS))
        answer = await self._ask(remote, lambda: client.subscribe([(mark, 0) for mark in marks]))
        if answer is None:
            return
        self._failures = 0
        self._is_refused = max(answer.reason_codes) >= UNSPECIFIED_ERROR
        note.marks = () if self._is_refused else marks
        try:
            await self._notes.save()
        except sqlite3.Error as error:  # it is saved with the next change; a kill until then may repeat messages
            logger.error("%s: the marks of the route's session cannot be noted: %s", self._client_id, error)

    async def _ask(self, remote: Remote, request: Callable[[], object]) -> Suback | Unsuback | None:
        """Returns the answer to a request, None if the connection ends without one."""
        try:
            request()
        except WireError as error:
            remote.close(str(error))
        answer = await _answer(remote)
        self._failures += answer is None
        return answer


async def _answer(remote: Remote) -> Suback | Unsuback | None:
    """Waits for the answer to a request; None if the connection ends. The rest is read later."""
    answers: list[Suback | Unsuback] = []
    others: list[Step] = []
    has_come = asyncio.get_running_loop().create_future()

    def take(step: Step) -> None:
        if not isinstance(step, Suback | Unsuback):
            others.append(step)
        elif not answers:
            answers.append(step)
            has_come.set_result(None)

    remote.reading.take(take)
    remote.flush()
    done, _ = await asyncio.wait(
        {has_come, remote.ended}, timeout=ANSWER_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED
    )
    if not done:
        remote.close(f"no answer to SUBSCRIBE or UNSUBSCRIBE in {ANSWER_DEADLINE_S:g} s")
    if not remote.ended.done():
        remote.reading.postpone(others)
    return answers[0] if answers else None
