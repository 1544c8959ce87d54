"""Wills: kept while their clients are connected, published when they are gone [section 3.1.2.5].

A will is stored before CONNACK, and taken out of the store in the transaction in which it is published: once, over any
crash. Once it is stored its client counts as back, with this will alone, whatever becomes of the CONNACK. Where the
transaction that publishes it fails, that is tried again, unless the client is back by then. At a start those are left
whose clients were connected; their delays begin then.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from gateway.doorkeeper import Refused
from gateway.holdings import Holdings
from gateway.logs import about
from gateway.store import wills as stored
from gateway.store.database import Work
from gateway.store.log import MessageLog
from gateway.store.wills import StoredWill, size_of
from wire.packets import Publish, Will
from wire.properties import WILL_DELAY_INTERVAL
from wire.reasons import QUOTA_EXCEEDED

RETRY_S = 5.0  # until a will is published again whose commit has failed

logger = logging.getLogger(__name__)


class Wills:
    """The wills by client identifier.

    Args:
        log: where they are kept.
        holdings: where their memory is counted.
        publish: publishes one and writes other work with it; returns None if the client may not any more.
    """

    def __init__(
        self,
        log: MessageLog,
        holdings: Holdings,
        publish: Callable[[StoredWill, Work], asyncio.Future[Any] | None],
    ) -> None:
        self._log = log
        self._holdings = holdings
        self._publish = publish
        self._wills: dict[str, StoredWill] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._publishing: set[StoredWill] = set()  # until it is known whether that is durable
        self._arrived: set[str] = set()  # clients that are connecting or connected

    def open(self, has_session: Callable[[str], bool]) -> None:
        """Goes on with the wills of before; a client without a session can not come back to it."""
        for will in self._log.wills:
            self._keep(will)
            if has_session(will.session):
                self._wait(will)
            else:
                self._execute(will)

    def close(self) -> None:
        """What waits goes on waiting at the next start."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def check(self, session: str, owner: str, will: Will | None) -> None:
        """Raises Refused where a client that connects brings a will, and its owner has too much kept already."""
        if will is None:
            return
        before = self._wills.get(session)
        freed = before.size if before is not None and before.owner == owner else 0
        if not self._holdings.fits(owner, size_of(will.topic, will.payload, will.properties) - freed):
            raise Refused(QUOTA_EXCEEDED, f"{self._holdings.of(owner)} bytes are kept for {owner} (limits.kept_bytes)")

    def arrive(
        self, session: str, user: str | None, will: Will | None, owner: str
    ) -> tuple[StoredWill | None, list[Work]]:
        """A client connects, with a will or without; returns that, and what has to be durable before CONNACK.

        A will that waits for the client's return waits on until then: ``stay`` comes next, or where that cannot be
        written, ``leave``.
        """
        self._arrived.add(session)
        self._stop_timer(session)
        if will is None:
            return None, [stored.remove(session)]
        properties = dict(will.properties)
        delay_s = properties.pop(WILL_DELAY_INTERVAL, 0)
        publish = Publish(will.topic, will.payload, will.qos, will.retain, properties=properties)
        new = StoredWill(session, user, publish, delay_s, owner=owner)
        return new, [stored.save(new)]

    def stay(self, session: str, will: StoredWill | None) -> None:
        """What ``arrive`` returned is durable: a will that waited for the client is not published [MQTT-3.1.3-9].

        Where the client's connection has ended meanwhile, it is gone already.
        """
        self._forget(session)
        if will is not None:
            self._keep(will)
            if session not in self._arrived:
                self._wait(will)

    def discard(self, session: str) -> None:
        """A client says good-bye: its will is not published [MQTT-3.1.2-10]."""
        if self._forget(session) is not None:
            self._write(stored.remove(session))

    def leave(self, session: str) -> None:
        """A client is gone: its will, unless it has said good-bye, is published once its delay has passed."""
        self._arrived.discard(session)
        will = self._wills.get(session)
        if will is not None and will not in self._publishing:  # the end of its session has ended its delay
            self._wait(will)

    def execute(self, session: str) -> None:
        """A session ends: whatever the delay, a will that waits is published now [MQTT-3.1.2-8]."""
        if will := self._wills.get(session):
            self._execute(will)

    def _wait(self, will: StoredWill) -> None:
        now_ms = int(time.time() * 1000)
        if not will.due_ms:
            will.due_ms = now_ms + 1000 * will.delay_s
            if will.delay_s:
                self._log.later(stored.set_due(will.session, will.due_ms))
        # A clock that was set back makes no delay longer than it is.
        wait_s = min(max(0, will.due_ms - now_ms) / 1000, will.delay_s)
        if wait_s:
            self._execute_in(will, wait_s)
        else:
            self._execute(will)

    def _execute(self, will: StoredWill) -> None:
        """Publishes a will, which stays here until that is durable. Another one of its session is left alone."""
        session = will.session
        if self._wills.get(session) is not will or will in self._publishing:
            return
        self._stop_timer(session)
        remove = stored.remove(session)
        published = self._publish(will, remove)
        if published is None:
            logger.warning("will not published", extra=about(client=session, reason="its user may not publish it"))
        if published is None or not will.publish.qos:  # a message of QoS 0 is on its way already
            self._forget(session)
            self._write(remove)
        else:
            self._publishing.add(will)
            published.add_done_callback(lambda done: self._published(will, done))

    def _published(self, will: StoredWill, done: asyncio.Future[Any]) -> None:
        session = will.session
        self._publishing.discard(will)
        if self._wills.get(session) is not will:  # its client is back
            return
        if done.cancelled() or (error := done.exception()) is None:
            self._forget(session)
            return
        logger.error("will not published yet", extra=about(client=session, reason=str(error)))
        if session not in self._arrived:
            self._execute_in(will, RETRY_S)

    def _execute_in(self, will: StoredWill, wait_s: float) -> None:
        """Publishes a will later; its session has one timer at most."""
        self._stop_timer(will.session)
        self._timers[will.session] = asyncio.get_running_loop().call_later(wait_s, self._execute, will)

    def _stop_timer(self, session: str) -> None:
        if timer := self._timers.pop(session, None):
            timer.cancel()

    def _write(self, work: Work) -> None:
        self._log.submit([work]).add_done_callback(lambda done: self._written(work, done))

    def _written(self, work: Work, done: asyncio.Future[Any]) -> None:
        if done.exception():
            self._log.later(work)

    def _forget(self, session: str) -> StoredWill | None:
        self._stop_timer(session)
        return self._let_go(session)

    def _keep(self, will: StoredWill) -> None:
        self._wills[will.session] = will
        self._holdings.add(will.owner, will.size)

    def _let_go(self, session: str) -> StoredWill | None:
        will = self._wills.pop(session, None)
        if will is not None:
            self._holdings.add(will.owner, -will.size)
        return will
