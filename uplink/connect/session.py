"""Whether the broker still has the session that a route knows.

A broker that has lost the session makes a new one at the next CONNECT, and says so in its CONNACK alone. That CONNACK
may be lost, or the gateway may be killed before it has noted it. Or another client comes under the route's client
identifier: mosquitto gives the route that client's session. Then a CONNACK says Session Present like any other, and the
route would take QoS 2 messages for delivered that the broker had received in the old session and has lost with it.

So the route marks the session: it subscribes to a topic to which no client publishes. Over the next connection it
subscribes to a new mark and unsubscribes from the former ones. The UNSUBACK says whether the session had one of them.
"""

import asyncio
import logging
import secrets
import sqlite3

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
MARKS_MAX = 16  # that a session may have while no UNSUBACK comes
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
        elif may_mark and 0 < len(note.marks) < MARKS_MAX:
            is_in_doubt = not self._was_settled or released or self._queue.publisher.incoming
            if is_in_doubt and await self._renew_mark(client, remote) is False:
                self.is_lost = True
                return LOST
        elif not self._was_settled and client.protocol_level == MQTT_5:
            await outgoing.begin_again(released)
        if may_mark and not note.marks:
            await self._renew_mark(client, remote)
        if remote.ended.done():
            return remote.ended.result()
        self.is_lost, self._is_settled = False, True
        return ""

    def _may_mark(self, client: BulkClientConnection, connack: Connack) -> bool:
        is_gateway = find_user_property(connack.properties, HOPS_PROPERTY) is not None
        has_qos_2 = client.protocol_level == MQTT_5 and client.maximum_qos_peer == 2
        return has_qos_2 and not is_gateway and not self._is_refused and self._failures < FAILURES_MAX

    async def _renew_mark(self, client: BulkClientConnection, remote: Remote) -> bool | None:
        """Puts a new mark in the place of the former ones.

        Returns whether the session had one of these; None if that is not found out. Raises sqlite3.Error if it has to
        be found out, and the new mark cannot be noted.
        """
        note = self._notes.note
        former, mark = note.marks, f"{TOPIC}/{self._client_id}/{secrets.token_hex(4)}"
        note.marks = (*former, mark)  # while it is not known which of them the session has
        try:
            await self._notes.save()
        except sqlite3.Error as error:
            note.marks = former
            if former and (self._queue.released_flows() or self._queue.publisher.incoming):
                raise
            logger.error("%s: the route's session cannot be marked: %s", self._client_id, error)
            return None
        try:
            client.subscribe([(mark, 0)])
            if former:
                client.unsubscribe(list(former))
        except WireError as error:
            remote.close(str(error))
        answers = await _answers(remote, 2 if former else 1)
        if len(answers) < (2 if former else 1):
            self._failures += 1
            return None
        self._failures = 0
        self._is_refused = answers[0].reason_codes[0] >= UNSPECIFIED_ERROR
        note.marks = () if self._is_refused else (mark,)
        await self._notes.save()
        return SUCCESS in [code for answer in answers[1:] for code in answer.reason_codes]


async def _answers(remote: Remote, count: int) -> list[Suback | Unsuback]:
    """Waits for the answers to that many requests; fewer come if the connection ends. The rest is read later."""
    answers: list[Suback | Unsuback] = []
    others: list[Step] = []
    have_come = asyncio.get_running_loop().create_future()

    def take(step: Step) -> None:
        if isinstance(step, Suback | Unsuback):
            answers.append(step)
        else:
            others.append(step)
        if len(answers) >= count and not have_come.done():
            have_come.set_result(None)

    remote.reading.take(take)
    remote.flush()
    done, _ = await asyncio.wait(
        {have_come, remote.ended}, timeout=ANSWER_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED
    )
    if not done:
        remote.close(f"no answer to SUBSCRIBE or UNSUBSCRIBE in {ANSWER_DEADLINE_S:g} s")
    if not remote.ended.done():
        remote.reading.postpone(others)
    return answers
