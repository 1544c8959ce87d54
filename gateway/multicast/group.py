"""One multicast group: the way of its messages from its feed to datagrams.

::

    feed ── PUBLISH of QoS 0 ─ fits? ─► shared datagram ─► tag ─► UDP
                               └─ no ─► over TLS to each receiver

One task takes all that waits, and then sends the datagram that is not full. So messages that come in one turn of the
event loop share datagrams, and a message that comes alone does not wait.
"""

import asyncio
import logging
import socket
import sqlite3
import struct
import time
from typing import Protocol

from gateway.config.multicast import MulticastConfig
from gateway.counters import MulticastState
from gateway.log_fields import about
from gateway.loop.pace import Slice
from gateway.message import Message, plain_properties
from gateway.multicast.keys import GroupKeys
from gateway.store import Feed, MessageLog, drops
from wire.codec.packets import Publish
from wire.multicast import MULTICAST_TOPIC, HandedKey
from wire.multicast.sender import ROOM, MulticastSender

CONSUMER_PREFIX = "multicast/"
TICK_S = 1.0  # without a datagram for so long, a heartbeat shows receivers what they have missed
SEND_BUFFER = 1024 * 1024  # bytes, as far as the system allows it

logger = logging.getLogger(__name__)


class Member(Protocol):
    """A receiver of a group, as long as it is connected."""

    def may_have(self, topic_filters: tuple[str, ...]) -> bool:
        """Whether the access rules let it receive all that these filters match."""

    def send_key(self, topic: str, text: str) -> None:
        """Sends it the next key."""

    def send(self, message: Message) -> None:
        """Sends it a message that fits no datagram, if a filter of its own matches."""


class MulticastGroup:
    """Sends what the filters of one group match.

    Args:
        config: the group's settings.
        log: the message log.
    """

    def __init__(self, config: MulticastConfig, log: MessageLog) -> None:
        self.config = config
        self.state = MulticastState(config.name)
        self._keys = GroupKeys(config.rotate_s, _now_s())
        self._sender = MulticastSender(self._keys.epoch, self._keys.number, self._keys.key)
        self._members: dict[Member, None] = {}
        self._is_closing = False
        self._socket: socket.socket | None = None
        self._open_socket()
        self._feed = Feed(log, f"{CONSUMER_PREFIX}{config.name}", config.topics)
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    async def close(self) -> None:
        """Sends what waits, and ends."""
        self._is_closing = True
        self._feed.wake()
        await asyncio.wait([self._task])
        self._timer.cancel()
        self._feed.close()
        self._close_socket()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("multicast %s: unexpected failure", self.config.name, exc_info=error)
            self.state.problem = f"unexpected failure: {error}"

    def join(self, member: Member) -> None:
        """A receiver is here, until ``leave``."""
        self._members[member] = None
        self.state.receivers = len(self._members)

    def leave(self, member: Member) -> None:
        """A receiver is no longer here; it may still have the key that is in use."""
        self._members.pop(member, None)
        self.state.receivers = len(self._members)

    def hand_out(self) -> list[str]:
        """Returns the keys that a receiver needs from now on, as text."""
        handed = [self._handed(number, key) for number, key in self._keys.hand_out()]
        self.state.keys_handed_out += len(handed)
        return handed

    def rotate(self) -> None:
        """Hands the next key to the receivers that are here and may have it; it is used soon."""
        self._keys.begin_next(_now_s())
        if not self._members:
            return
        topic = MULTICAST_TOPIC + self.config.name
        text = self._handed(*self._keys.hand_out_next())
        for member in list(self._members):
            if member.may_have(self.config.topics):
                member.send_key(topic, text)
                self.state.keys_handed_out += 1
            else:
                self.leave(member)
        receivers = str(self.state.receivers)
        logger.info("multicast key changes", extra=about(group=self.config.name, receivers=receivers))

    def _handed(self, number: int, key: bytes) -> str:
        config, sender = self.config, self._sender
        counts = sender.datagrams, sender.messages
        return HandedKey(config.name, config.address, config.port, number, key, self._keys.epoch, *counts).encode()

    def _tick(self) -> None:
        now_s = _now_s()
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        if self._keys.is_next_due(now_s):
            self.rotate()
        if self.state.problem:
            self._close_socket()
            self._open_socket()
        self._feed.wake()

    async def _run(self) -> None:
        slice_ = Slice()
        last_s = _now_s()
        while not self._is_closing:
            await self._feed.wait()
            try:
                while messages := await self._feed.take():
                    for message in messages:
                        await self._take(message)
                        if slice_.is_over:
                            await slice_.give_way()
            except sqlite3.Error as error:
                self._note_problem(f"the store failed: {error}")
            before = self._sender.datagrams
            is_quiet = (self._keys.has_readers or self.state.problem) and _now_s() - last_s >= TICK_S
            if self._sender.has_messages or is_quiet:
                await self._send()
            if self._sender.datagrams != before:
                last_s = _now_s()
            if self._keys.is_change_due(_now_s()):
                self._keys.change(_now_s())
                self._sender.use_key(self._keys.number, self._keys.key)
                self.state.key_number = self._keys.number

    async def _take(self, message: Message) -> None:
        if not self._keys.has_readers:
            return  # no receiver could check the datagram
        if message.expires_ms and message.expires_ms <= time.time() * 1000:
            self._feed.drop(drops.EXPIRED, message)
            return
        packet = Publish(message.topic, message.payload, properties=plain_properties(message)).encode()
        if len(packet) > ROOM:
            await self._send_over_tls(message)
            return
        if not self._sender.fits(packet):
            await self._send()
        self._sender.add(packet)
        self.state.messages_sent += 1

    async def _send_over_tls(self, message: Message) -> None:
        self.state.oversize_messages += 1
        slice_ = Slice()
        for member in list(self._members):
            if member in self._members:
                member.send(message)
            if slice_.is_over:
                await slice_.give_way()

    async def _send(self) -> None:
        """Sends a datagram with what was added. One that cannot leave is missing at the receivers, which count it."""
        datagram = self._sender.seal()
        if self._socket is None:
            return
        try:
            try:
                self._socket.send(datagram)
            except BlockingIOError:
                await asyncio.get_running_loop().sock_sendall(self._socket, datagram)
        except OSError as error:
            self._note_problem(error.strerror or str(error))
        else:
            self._note_sent(datagram)

    def _note_sent(self, datagram: bytes) -> None:
        self.state.datagrams_sent += 1
        self.state.bytes_sent += len(datagram)
        if self.state.problem:
            self.state.problem = ""
            logger.info("multicast goes out again", extra=about(group=self.config.name))

    def _note_problem(self, text: str) -> None:
        if not self.state.problem:
            logger.warning("multicast does not go out", extra=about(group=self.config.name, reason=text))
        self.state.problem = text

    def _open_socket(self) -> None:
        """Opens the socket; without its interface, or a route, it is tried again later."""
        config = self.config
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, config.ttl)
            if config.interface is not None:
                # struct ip_mreqn of Linux: group, address, number of the interface
                chosen = struct.pack("@4s4si", bytes(4), bytes(4), socket.if_nametoindex(config.interface))
                opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, chosen)
            opened.connect((config.address, config.port))
        except OSError as error:
            opened.close()
            self._note_problem(f"interface {config.interface}: {error.strerror or error}")
            return
        self._socket = opened

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _now_s() -> float:
    return asyncio.get_running_loop().time()
