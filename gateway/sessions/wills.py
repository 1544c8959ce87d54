"""Wills: kept while their clients are connected, published when they are gone [section 3.1.2.5].

A will is stored before CONNACK, and removed in the transaction that publishes it, so that it is published once whatever
crashes. When it is stored its client counts as back, with this will alone, even if the CONNACK is lost. If the
transaction that publishes it fails, it is tried again unless the client is back by then. After a crash the wills of
clients that were connected are left in the store; their delays begin at the start.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from gateway.auth.admission import Refused
from gateway.holdings import Holdings
from gateway.log_fields import about
from gateway.loop.timers import Timer, Timers
from gateway.store import MessageLog, Work, wills
from wire.codec.packets import Publish, Will
from wire.properties import WILL_DELAY_INTERVAL
from wire.reasons import NOT_AUTHORIZED, QUOTA_EXCEEDED, describe

RETRY_S = 5.0  # after a failed commit, until its will is published again

logger = logging.getLogger(__name__)


class Wills:
    """The wills by client identifier.

    Args:
        log: stores them.
        holdings: counts their memory.
        timers: call when delays end.
        publish: publishes a will and writes other work with it; returns the reason code if it may not be published.
    """

    def __init__(
        self,
        log: MessageLog,
        holdings: Holdings,
        timers: Timers,
        publish: Callable[[wills.StoredWill, Work], asyncio.Future[Any] | int],
    ) -> None:
        self._log = log
        self._holdings = holdings
        self._timers = timers
        self._publish = publish
        self._wills: dict[str, wills.StoredWill] = {}
        self._delays: dict[str, Timer] = {}
        self._publishing: set[wills.StoredWill] = set()  # until their commits have ended
        self._arrived: set[str] = set()  # clients that are connecting or connected
        self._closed = False

    def open(self, has_session: Callable[[str], bool]) -> None:
        """Loads the stored wills. The will of a client without a session is published at once."""
        for will in self._log.found.wills:
            self._keep(will)
            if has_session(will.session):
                self._wait(will)
            else:
                self._execute(will)

    def close(self) -> None:
        """Publishes no more wills: the next start takes up the wills of clients that are connected or away."""
        self._closed = True
        for session in list(self._delays):
            self._stop_timer(session)

    def check(self, session: str, owner: str, will: Will | None) -> None:
        """Raises Refused if a CONNECT brings a will and its owner holds too much already."""
        if will is None:
            return
        before = self._wills.get(session)
        freed = before.size if before is not None and before.owner == owner else 0
        if not self._holdings.fits(owner, wills.size_of(will.topic, will.payload, will.properties) - freed):
            raise Refused(QUOTA_EXCEEDED, f"{self._holdings.of(owner)} bytes are kept for {owner} (limits.kept_bytes)")

    def arrive(
        self, session: str, user: str | None, will: Will | None, owner: str
    ) -> tuple[wills.StoredWill | None, list[Work]]:
        """Begins a client's connection, with a will or without.

        Returns the will, and the work that has to be durable before CONNACK. A will of an earlier connection that waits
        for the client's return goes on waiting. The caller calls ``stay`` when the work is durable, or ``leave`` if it
        fails.
        """
        self._arrived.add(session)
        self._stop_timer(session)
        if will is None:
            return None, [wills.remove(session)]
        properties = dict(will.properties)
        delay_s = properties.pop(WILL_DELAY_INTERVAL, 0)
        publish = Publish(will.topic, will.payload, will.qos, will.retain, properties=properties)
        new = wills.StoredWill(session, user, publish, delay_s, owner=owner)
        return new, [wills.save(new)]

    def stay(self, session: str, will: wills.StoredWill | None) -> None:
        """Takes the will of ``arrive``, which is durable now; the one before is not published [MQTT-3.1.3-9].

        The client's connection may have ended meanwhile; then the delay of the new will begins.
        """
        self._forget(session)
        if will is not None:
            self._keep(will)
            if session not in self._arrived:
                self._wait(will)

    def discard(self, session: str) -> None:
        """Removes the will of a client that sends DISCONNECT: it is not published [MQTT-3.1.2-10]."""
        if self._forget(session) is not None:
            self._write(wills.remove(session))

    def leave(self, session: str) -> None:
        """Ends a client's connection: the will that it has left is published when its delay has passed."""
        if self._closed:
            return
        self._arrived.discard(session)
        will = self._wills.get(session)
        if will is not None and will not in self._publishing:  # not yet published by ``execute``
            self._wait(will)

    def execute(self, session: str) -> None:
        """Publishes the will of a session that ends now, whatever its delay [MQTT-3.1.2-8]."""
        if not self._closed and (will := self._wills.get(session)):
            self._execute(will)

    def _wait(self, will: wills.StoredWill) -> None:
        now_ms = int(time.time() * 1000)
        if not will.due_ms:
            will.due_ms = now_ms + 1000 * will.delay_s
            if will.delay_s:
                self._log.defer(wills.set_due(will.session, will.due_ms))
        # A clock that was set back must not make a delay longer.
        wait_s = min(max(0, will.due_ms - now_ms) / 1000, will.delay_s)
        if wait_s:
            self._execute_in(will, wait_s)
        else:
            self._execute(will)

    def _execute(self, will: wills.StoredWill) -> None:
        """Publishes a will, which stays here until that is durable, unless its session has another will by now."""
        session = will.session
        if self._wills.get(session) is not will or will in self._publishing:
            return
        self._stop_timer(session)
        remove = wills.remove(session)
        published = self._publish(will, remove)
        if isinstance(published, int):
            reason = "its user may not publish it" if published == NOT_AUTHORIZED else describe(published)
            logger.warning("will not published", extra=about(client=session, reason=reason))
        if isinstance(published, int) or not will.publish.qos:  # a message of QoS 0 has been sent already
            self._forget(session)
            self._write(remove)
        else:
            self._publishing.add(will)
            published.add_done_callback(lambda done: self._published(will, done))

    def _published(self, will: wills.StoredWill, done: asyncio.Future[Any]) -> None:
        session = will.session
        self._publishing.discard(will)
        if self._wills.get(session) is not will:  # its client is back, with another will or none
            return
        if done.cancelled() or (error := done.exception()) is None:
            self._forget(session)
            return
        logger.error("will not published yet", extra=about(client=session, reason=str(error)))
        if session not in self._arrived:
            self._execute_in(will, RETRY_S)

    def _execute_in(self, will: wills.StoredWill, wait_s: float) -> None:
        """Publishes a will later; a session has one timer at most."""
        self._stop_timer(will.session)
        if not self._closed:
            delay = self._delays[will.session] = Timer(partial(self._execute, will))
            self._timers.set_in(delay, wait_s)

    def _stop_timer(self, session: str) -> None:
        if delay := self._delays.pop(session, None):
            self._timers.set(delay, None)

    def _write(self, work: Work) -> None:
        self._log.submit([work]).add_done_callback(lambda done: self._written(work, done))

    def _written(self, work: Work, done: asyncio.Future[Any]) -> None:
        if done.exception():
            self._log.defer(work)

    def _forget(self, session: str) -> wills.StoredWill | None:
        self._stop_timer(session)
        return self._remove(session)

    def _keep(self, will: wills.StoredWill) -> None:
        self._wills[will.session] = will
        self._holdings.add(will.owner, will.size)

    def _remove(self, session: str) -> wills.StoredWill | None:
        will = self._wills.pop(session, None)
        if will is not None:
            self._holdings.add(will.owner, -will.size)
        return will
