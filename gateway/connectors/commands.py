"""Commands for the units of a connector: each is taken once and answered once, through any restart.

A consumer of the log of its own takes them, in order. Before anything of a command goes to a unit, the store notes that
it was begun; its answer is stored in one transaction with the note that it was answered. A command that was begun by a
former process, and not answered, is not carried out again: its answer says that the unit may have taken the value, and
what is there now.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gateway.config.connectors import ModbusConfig, UnitConfig, ValueConfig, command_topic
from gateway.connectors.line import fill
from gateway.connectors.modbus.command import Command, Outcome, Refused, Written, answer_of, command_in, write_of
from gateway.connectors.modbus.request import Write
from gateway.connectors.wire import now_ms
from gateway.limits import Limits, Verdict
from gateway.log_fields import about
from gateway.loop.signals import Signal
from gateway.message import Message
from gateway.sessions.publishing import Publishing
from gateway.store import Cursor, Delivery, MessageLog, connectors, consumer_names
from wire.properties import CONTENT_TYPE, CORRELATION_DATA, RESPONSE_TOPIC

RETRY_S = 0.5
EXACTLY_ONCE = 2
ANSWER = "/answer"  # behind the topic name of a device's messages
CONTENT = "application/json"
BELIEVED = ("$", "holdfast/", "hf/")  # topics of statements and receipts, which are believed for the gateway's identity
ENDED = "the gateway has ended while it wrote"
EXPIRED = "its time was over before it could be carried out"

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Order:
    """A command that may be carried out.

    ``write`` is the request, None if a former process has begun with it: then the value is read alone. ``begin`` notes
    durably that it is begun; it raises sqlite3.Error. ``is_late`` says whether its time is over.
    """

    device: str
    value: ValueConfig
    write: Write | None
    begin: Callable[[], Awaitable[None]]
    is_late: Callable[[], bool]


class Units(Protocol):
    """The units that commands are for."""

    async def carry_out(self, order: Order) -> Outcome:
        """Has a unit do what an order says. Raises sqlite3.Error: it was not begun."""

    def count_answer(self, device: str, written: Written) -> None:
        """Counts a command that was answered."""


class Commands:
    """Takes the commands of one connector.

    Args:
        config: the connector.
        log: the message log.
        publishing: makes the work that stores an answer.
        limits: say whether the store takes it.
        gateway: the gateway's name.
        units: do what an order says.
    """

    def __init__(
        self,
        config: ModbusConfig,
        log: MessageLog,
        publishing: Publishing,
        limits: Limits,
        gateway: str,
        units: Units,
    ) -> None:
        self._config = config
        self._log, self._publishing, self._limits, self._gateway = log, publishing, limits, gateway
        self._units = units
        self._by_topic: Mapping[str, UnitConfig] = {
            command_topic(config, unit): unit for unit in config.unit if any(value.write for value in unit.value)
        }
        self._consumer = consumer_names.COMMANDS + config.name
        self._newest = log.found.taken_commands.get(self._consumer)
        if self._newest is None and self._consumer not in log.consumers.names():
            self._newest = connectors.TakenCommand(log.head, is_answered=True)
            log.defer(connectors.save_taken(self._consumer, self._newest))
        self._unknown_to = 0 if self._newest is not None else log.head  # what was noted of these is lost
        self._news = Signal()
        self._cursor = Cursor(log, self._consumer, self._by_topic, window=1)
        self._cursor.wake_with(self._news.set)

    async def run(self) -> None:
        """Takes commands until it is cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                while deliveries := await self._cursor.fetch_now(1):
                    await self._take(deliveries[0])
            except sqlite3.Error as error:
                logger.warning("a command waits for the store", extra=about(reason=str(error)))
                await asyncio.sleep(RETRY_S)
                self._news.set()

    async def _take(self, delivery: Delivery) -> None:
        try:
            if not self._was_answered(delivery.position):
                await self._answer(delivery)
        except BaseException:
            self._cursor.redeliver([delivery.packet_identifier])
            raise
        self._cursor.acknowledge_all([delivery.packet_identifier])

    def _was_answered(self, position: int) -> bool:
        if self._newest is None:
            return False
        return position < self._newest.position + self._newest.is_answered

    def _is_begun(self, position: int) -> bool:
        """Whether a former process, or this one before a failure, may have begun with the command at a position."""
        is_newest = self._newest is not None and position == self._newest.position
        return is_newest or position <= self._unknown_to

    async def _answer(self, delivery: Delivery) -> None:
        message, command, outcome = delivery.message, None, Outcome("no")
        unit, is_begun = self._by_topic[message.topic], self._is_begun(delivery.position)
        topic = await self._answer_topic(message, unit)
        try:
            command = _checked(message)
            outcome = await self._units.carry_out(self._order(delivery, unit, command, is_begun))
        except Refused as refused:
            outcome.error = str(refused)
        if is_begun and outcome.written == "no":
            outcome.written, outcome.error = "unknown", f"{ENDED}; it was not looked at: {outcome.error}"
        logger.info(
            "a command for a unit",
            extra=about(
                client=message.publisher,
                device=unit.device,
                value=command.name if command is not None else "",
                written=outcome.written,
                reason=outcome.error,
            ),
        )
        await self._store(delivery.position, self._answer_message(topic, message, command, outcome))
        self._units.count_answer(unit.device, outcome.written)

    def _order(self, delivery: Delivery, unit: UnitConfig, command: Command, is_begun: bool) -> Order:
        """Returns what a command orders. Raises Refused."""
        value = next((one for one in unit.value if one.name == command.name), None)
        if value is None:
            raise Refused(f"{unit.device} has no value {command.name[:64]!r}")
        write = write_of(value, command.value)

        async def begin() -> None:
            await self._note(delivery.position)

        def is_late() -> bool:
            return _is_late(delivery.message)

        return Order(unit.device, value, None if is_begun else write, begin, is_late)

    async def _note(self, position: int) -> None:
        begun = connectors.TakenCommand(position, is_answered=False)
        await self._log.submit([connectors.save_taken(self._consumer, begun)])
        self._newest = begun

    async def _store(self, position: int, answer: Message) -> None:
        """Stores an answer; it is known here alone until then, so this does not give up."""
        answered = connectors.TakenCommand(position, is_answered=True)
        while True:
            works = [*self._publishing.publish(answer), connectors.save_taken(self._consumer, answered)]
            try:
                await self._log.submit(works)
            except sqlite3.Error as error:
                logger.warning("the answer to a command is not stored yet", extra=about(reason=str(error)))
                await asyncio.sleep(RETRY_S)
            else:
                self._newest = answered
                return

    async def _answer_topic(self, message: Message, unit: UnitConfig) -> str:
        """Waits until an answer can be stored, and returns its topic name: the Response Topic, unless commands are
        taken from it, its consumers are full, or messages of this gateway are believed there.

        The client's rights to it were checked when the command came.
        """
        usual = fill(self._config.topic, {"device": unit.device}) + ANSWER
        wanted = str(message.properties.get(RESPONSE_TOPIC, ""))
        is_free = wanted and wanted not in self._by_topic and not wanted.startswith(BELIEVED)
        topics = [wanted, usual] if is_free else [usual]
        while True:
            for topic in topics:
                if self._limits.verdict(topic, "", "") is Verdict.TAKE:
                    return topic
            await asyncio.sleep(RETRY_S)

    def _answer_message(self, topic: str, message: Message, command: Command | None, outcome: Outcome) -> Message:
        properties = {CONTENT_TYPE: CONTENT}
        correlation = message.properties.get(CORRELATION_DATA, b"")
        if correlation:
            properties[CORRELATION_DATA] = correlation
        payload = answer_of(command, outcome, bytes(correlation).decode(errors="replace"))
        return Message(topic, payload, EXACTLY_ONCE, False, properties, received_ms=now_ms(), received_by=self._gateway)


def forget_others(log: MessageLog, names: Iterable[str]) -> None:
    """Forgets what other connectors than these, by name, have taken: no message is kept for them any more."""
    kept = {consumer_names.COMMANDS + name for name in names}
    for consumer in log.consumers.names():
        if consumer.startswith(consumer_names.COMMANDS) and consumer not in kept:
            log.defer(connectors.forget_taken(consumer))
            log.forget(consumer)


def _checked(message: Message) -> Command:
    """Returns the command of a message that may be carried out. Raises Refused."""
    if message.retain:
        raise Refused("it is retained: a command is not")
    if message.qos != EXACTLY_ONCE:
        raise Refused(f"it has QoS {message.qos}: expected QoS 2, so that it comes once")
    if _is_late(message):
        raise Refused(EXPIRED)
    return command_in(message.payload)


def _is_late(message: Message) -> bool:
    return 0 < message.expires_ms <= now_ms()
