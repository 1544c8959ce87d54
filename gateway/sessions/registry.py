"""All sessions: they are made, resumed, left without a connection, and ended; durable ones outlive restarts."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Container, Coroutine, Iterable
from functools import partial

from gateway.auth.admission import Admitted, Refused
from gateway.config.schema import LimitsConfig
from gateway.holdings import Holding, Holdings
from gateway.loop.timers import Timer, Timers
from gateway.network.link import BadLink, LinkSettings, check_conditions, decode_link
from gateway.sessions.absence import drop_while_away
from gateway.sessions.copies import LinkCopies
from gateway.sessions.released import Released
from gateway.sessions.session import Absence, LiveConnection, Session
from gateway.sessions.subscribers import Subscribers
from gateway.store import Cursor, MessageLog, Outgoing, RunCursor, consumer_names, qos2, retained, sessions, skip_ahead
from wire.reasons import CLIENT_IDENTIFIER_NOT_VALID, QUOTA_EXCEEDED, SESSION_TAKEN_OVER

NEVER_EXPIRES_S = 0xFFFF_FFFF  # [section 3.1.2.11.2]
INFLIGHT_WINDOW_MAX = 1000  # unacknowledged deliveries to one client, even if its Receive Maximum is larger
CORRUPT = sessions.SessionDescription(NEVER_EXPIRES_S, None)
"""Stands for a session with a corrupt row, until it has ended."""

RETURN_S = 3600.0  # after a start, for clients to come back to a gateway that was off for long
EARLIEST_UNIX_MS = 1_767_225_600_000  # 2026: an earlier time comes from a clock that was not set

logger = logging.getLogger(__name__)


class Sessions:
    """The sessions by client identifier.

    Args:
        log: the message log, in which each session has its cursor.
        subscribers: has the subscriptions of all sessions.
        copies: the retained messages that came over links.
        holdings: counts the memory that is held for them.
        limits: how many durable sessions there may be, and how long one stays while its client is away.
        timers: call when sessions expire.
        ended: called with the client identifier of a session that has ended.
        problem: says why no more durable sessions are made; "" while they are made.
    """

    def __init__(
        self,
        log: MessageLog,
        subscribers: Subscribers,
        copies: LinkCopies,
        holdings: Holdings,
        limits: LimitsConfig,
        timers: Timers,
        ended: Callable[[str], None],
        problem: Callable[[], str],
    ) -> None:
        self._log = log
        self._copies = copies
        self._holdings = holdings
        self._limits = limits
        self._timers = timers
        self._ended = ended
        self._problem = problem
        self._subscribers = subscribers
        self._sessions: dict[str, Session] = {}
        self._durable = 0  # of these
        self._tasks: set[asyncio.Task[None]] = set()
        self._settling: set[asyncio.Task[None]] = set()  # those of them that the next start would do again

    def open(self) -> None:
        """Loads the durable sessions. One with a corrupt row ends, and the messages that waited for it leave ranges."""
        flows = self._flows_of(self._log.found.sessions)
        for client_id, stored in self._log.found.sessions.items():
            if client_id.endswith(qos2.ROUTE_END):  # what a neighbour wants, of a route that is gone
                self._log.defer(sessions.remove_session(client_id))
                continue
            session = self._restore(client_id, stored, flows.get(client_id, ()))
            if stored.description is None:
                logger.error("session store: the session of client %r is corrupt and ends", client_id)
                self.end(session)
            else:
                self._keep_or_end(session, at_least_s=RETURN_S)
                self._note_away(session)
        cursors = [session.cursor for session in self._sessions.values()] + self._subscribers.cursors()
        here = {cursor.consumer for cursor in cursors}
        for consumer in self._log.consumers.names():
            if consumer == consumer_names.LOST:
                self._log.forget(consumer)
            elif consumer.startswith((consumer_names.SESSION, consumer_names.GROUP)) and consumer not in here:
                logger.error("session store: consumer %r has a cursor and no subscriptions; it ends", consumer)
                self._subscribers.end_lost(consumer)
        self._settle(cursors)

    def _restore(self, client_id: str, stored: sessions.StoredSession, flows: Iterable[qos2.Flow]) -> Session:
        description = stored.description or CORRUPT
        session = self.create(client_id, description.user, description.expiry_s, flows, durable=True)
        session.incoming = self._log.found.incoming.pop(client_id, {})
        session.released = Released(
            self._log.defer, client_id, session.incoming, self._log.found.released.pop(client_id, {})
        )
        owed = self._log.found.owed.pop(client_id, [])
        session.owed.update(dict.fromkeys(owed))
        session.holding.add(sum(one.size for one in owed))
        session.absence = Absence(description.left_at, description.disconnected_ms)
        if description.left_at:
            session.cursor.note_left(description.left_at)
        session.unsaved.note_description(session.describe())
        session.unsaved.note_saved(dict(session.unsaved))
        self._subscribers.give_link(session, _link_of(description))
        self._subscribers.restore(session, stored.subscriptions)
        return session

    def _flows_of(self, known: Container[str]) -> dict[str, list[qos2.Flow]]:
        """Returns the stored QoS 2 flows by session; removes flows of sessions that have ended."""
        flows: dict[str, list[qos2.Flow]] = {}
        for flow in self._log.found.flows:
            if flow.state != qos2.ENDED:
                flows.setdefault(flow.session, []).append(flow)
        found = self._log.found
        for client_id in flows.keys() | found.incoming.keys() | found.released.keys() | found.owed.keys():
            if client_id in known or client_id.endswith(qos2.ROUTE_END):
                continue
            for remove in (qos2.forget_incoming, retained.forget_all_owed):
                self._log.defer(remove(client_id))
            Outgoing(self._log, client_id, flows.pop(client_id, ())).end()
        return flows

    async def close(self) -> None:
        """Waits for what has to be saved, and closes all cursors."""
        for settling in self._settling:
            settling.cancel()  # the next start does it again
        while self._tasks:
            await asyncio.wait(self._tasks)
        for session in self._sessions.values():
            session.cursor.close()
        for cursor in self._subscribers.cursors():
            cursor.close()

    def all(self) -> list[Session]:
        """Returns every session, with its client connected or not."""
        return list(self._sessions.values())

    def get(self, client_id: str) -> Session | None:
        return self._sessions.get(client_id)

    def take_up(
        self, connection: LiveConnection, admitted: Admitted, link: LinkSettings | None = None
    ) -> tuple[Session, bool]:
        """Makes or resumes the session of a client that logs in; a connection that has it ends [MQTT-3.1.4-3].

        ``link`` has the settings of the link if the client is a neighbour.

        Returns:
            The session, and whether it was present.

        Raises:
            Refused: the session belongs to another user, or there are too many sessions. Then nothing has changed.
        """
        client_id, packet, user = admitted.client_id, admitted.packet, admitted.permissions.user
        expiry_s = 0 if connection.is_realtime else packet.session_expiry_s
        session = self.get(client_id)
        if session is not None and session.user not in (None, user):
            raise Refused(CLIENT_IDENTIFIER_NOT_VALID, "this session belongs to another user")
        is_one_more = session is None or not session.durable
        if connection.is_realtime and not (is_one_more or packet.clean_start):
            text = "the client's session is stored, and a real-time listener serves none: a Clean Start would end it"
            raise Refused(CLIENT_IDENTIFIER_NOT_VALID, text, is_told=True)
        if is_one_more and expiry_s and self._durable >= self._limits.sessions:
            raise Refused(QUOTA_EXCEEDED, f"{self._durable} sessions wait for their clients (limits.sessions)")
        if is_one_more and expiry_s and (problem := self._problem()):
            raise Refused(QUOTA_EXCEEDED, problem)
        if session is not None and session.connection is not None:
            session.connection.disconnect(SESSION_TAKEN_OVER)
            session = self.get(client_id)
        if session is not None and packet.clean_start:
            self.end(session)
            session = None
        present = session is not None
        if session is None:
            session = self.create(client_id, user, expiry_s, durable=expiry_s > 0)
            session.is_realtime = connection.is_realtime
        session.user = user
        session.holding.give(connection.owner)
        session.cursor.rights.may_receive = admitted.permissions.may_receive
        self._subscribers.give_link(session, link)
        self.resume(session, connection, expiry_s)
        return session, present

    def create(
        self, client_id: str, user: str | None, expiry_s: int, flows: Iterable[qos2.Flow] = (), *, durable: bool
    ) -> Session:
        """Makes a session without subscriptions."""
        cursor = RunCursor(self._log, consumer_names.SESSION + client_id, durable=durable, window=INFLIGHT_WINDOW_MAX)
        outgoing = Outgoing(self._log, client_id, flows)
        session = self._sessions[client_id] = Session(
            self._log, client_id, user, expiry_s, cursor, outgoing, Holding(self._holdings)
        )
        if durable:
            session.released = Released(self._log.defer, client_id, session.incoming)
        self._durable += session.durable
        return session

    def resume(self, session: Session, connection: LiveConnection, expiry_s: int) -> None:
        """Gives a session to a connection; the expiry of its CONNECT holds from now on."""
        self._stop_expiry(session)
        session.connection = connection
        session.absence = None
        session.expiry_s = expiry_s
        if session.released is not None:
            session.released.resume()

    def rest(self, session: Session) -> None:
        """Takes its connection from a session, which ends as well or waits for its expiry."""
        session.connection = session.sender = None
        session.absence = Absence(self._log.head)
        if session.released is not None:
            session.released.pause()
        if self._keep_or_end(session):
            self._settle(self._subscribers.unfed_cursors(session))
            self._note_away(session)

    def _keep_or_end(self, session: Session, at_least_s: float = 0.0) -> bool:
        """Lets a session without a connection expire, or ends it at once; returns whether it is still there.

        A session that ends sooner than its client asked for stays for ``at_least_s``.
        """
        if session.expiry_s == 0:
            self.end(session)
            return False
        assert session.absence is not None
        longest_s = self._limits.session_expiry_max_s
        if session.expiry_s > longest_s:
            self._let_expire(session, session.absence, longest_s, at_least_s)
        elif session.expiry_s != NEVER_EXPIRES_S:
            self._let_expire(session, session.absence, session.expiry_s)
        self._in_background(self.save(session.client_id))
        return True

    def _note_away(self, session: Session) -> None:
        if session.link is None:
            return
        if not session.cursor.tally.counts:  # what waits for a neighbour that is away is shown
            self._until_closed(self._log.backlogs.count(session.cursor))
        if session.link.settings.mode == "active-passive":
            self._copies.of(session.client_id).clear()
            self._until_closed(drop_while_away(self._log, session))

    def _settle(self, cursors: list[Cursor]) -> None:
        self._until_closed(skip_ahead(self._log, cursors))

    def _until_closed(self, work: Coroutine[None, None, None]) -> None:
        settling = self._in_background(work)
        self._settling.add(settling)
        settling.add_done_callback(self._settling.discard)

    def end(self, session: Session) -> None:
        """Ends a session, with its subscriptions and the messages that wait for it."""
        self._stop_expiry(session)
        self._subscribers.end(session)
        if session.link is not None:
            self._copies.of(session.client_id).clear()
        session.outgoing.end()
        if session.released is not None:
            session.released.pause()
        if session.durable:
            self._log.defer(sessions.remove_session(session.client_id))
            self._log.defer(qos2.forget_incoming(session.client_id))
        if session.owed:
            self._log.defer(retained.forget_all_owed(session.client_id))
        del self._sessions[session.client_id]
        self._durable -= session.durable
        self._ended(session.client_id)

    async def save(self, client_id: str, without: Container[str] = ()) -> None:
        """Stores a client's session as it is now. Raises sqlite3.Error.

        Args:
            client_id: the client.
            without: topic filters that it unsubscribes when this is durable; until then they count as not saved.

        The end of an earlier session of the client is durable with the next commit. That a client is back is left to
        ``note_back`` if only ``limits.session_expiry_max_s`` ends its session: then the client logs in without a sync,
        also when the disk is full.
        """
        session = self.get(client_id)
        if session is None or not session.durable:
            return
        session.unsaved.note_description(session.describe())
        is_endless = session.expiry_s > self._limits.session_expiry_max_s
        if is_endless and session.connection is not None and session.unsaved.has_only_come_or_gone:
            return
        if changes := dict(session.unsaved):
            entries = {name: None if name in without else session.entry(name) for name in changes}
            await self._log.submit([sessions.SaveSession(client_id, entries)])
            session.unsaved.note_saved({name: change for name, change in changes.items() if name not in without})

    def note_back(self, session: Session) -> None:
        """Defers what ``save`` has left out to a later commit, for which the client does not wait."""
        if "" in session.unsaved:
            self._log.defer(sessions.SaveSession(session.client_id, {"": session.entry("")}))

    def _let_expire(self, session: Session, absence: Absence, expiry_s: int, at_least_s: float = 0.0) -> None:
        now_ms = int(time.time() * 1000)
        if absence.since_ms is None or absence.since_ms < EARLIEST_UNIX_MS:
            absence.since_ms = now_ms
        # A clock that was set back, or is not set yet, must not make a session older.
        passed_s = max(0, now_ms - absence.since_ms) / 1000
        absence.expiry = Timer(partial(self._expire, session))
        self._timers.set_in(absence.expiry, max(expiry_s - passed_s, min(expiry_s, at_least_s)))

    def _stop_expiry(self, session: Session) -> None:
        if session.absence is not None and session.absence.expiry is not None:
            self._timers.set(session.absence.expiry, None)
            session.absence.expiry = None

    def _expire(self, session: Session) -> None:
        logger.info("session of %s expired", session.client_id)
        self._log.counters.sessions_expired += 1
        self.end(session)

    def _in_background(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._report(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _report(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except sqlite3.Error as error:
            logger.error("a session could not be saved: %s", error)


def _link_of(description: sessions.SessionDescription) -> LinkSettings | None:
    try:
        settings = decode_link(description.link) if description.link else None
        if settings is not None:
            check_conditions(settings)
        return settings
    except BadLink as error:
        logger.error("session store: %s", error)
        return None
