"""What one publisher may publish, and what it is told of a message that it may not."""

import logging
from collections.abc import Callable

from gateway.auth.permissions import Permissions, Topics
from gateway.connection.intake.publish_answers import PublishAnswers
from gateway.log_fields import about
from gateway.message import Message
from gateway.sessions.publishing import Publishing
from wire.codec.packets import MQTT_5, Publish
from wire.identity import IDENTITY_PROPERTY, find_user_property
from wire.reasons import NOT_AUTHORIZED, QUOTA_EXCEEDED, SERVER_BUSY, SUCCESS, describe

ORIGIN_SAID = 64  # characters of an origin in a reason string
logger = logging.getLogger(__name__)


class PublishRules:
    """Checks one publisher's messages, and refuses the ones that it may not publish or that do not fit.

    Args:
        publishing: the checks that a will passes too; it counts what is refused.
        answers: tell the publisher.
        permissions: what the publisher may do.
        topics: learns the topic names that may take the fast path.
        disconnect: ends the connection with a reason code. None: no message ends it.
        keeps_identities: whether the publisher would rather have a message refused than get a new identity.
    """

    __slots__ = (
        "_answers",
        "_disconnect",
        "_has_replaced",
        "_keeps_identities",
        "_permissions",
        "_publishing",
        "_remark",
        "_said",
        "_topics",
    )

    def __init__(
        self,
        publishing: Publishing,
        answers: PublishAnswers,
        permissions: Permissions,
        topics: Topics,
        disconnect: Callable[[int], None] | None = None,
        *,
        keeps_identities: bool = False,
    ) -> None:
        self._publishing = publishing
        self._answers = answers
        self._permissions = permissions
        self._topics = topics
        self._disconnect = disconnect or _leave_open
        self._keeps_identities = keeps_identities
        self._has_replaced = False
        self._remark = ""  # a reason string for the next acknowledgement
        self._said = SUCCESS  # the reason code that was logged last

    def check(self, packet: Publish, message: Message, came_ms: int) -> int:
        """Returns the reason code for a message that came at ``came_ms``: SUCCESS if it may be published."""
        origin = message.origin
        claimed = origin or find_user_property(packet.properties, IDENTITY_PROPERTY)
        reason_code, is_replaced = self._publishing.check(
            message,
            self._permissions,
            came_ms,
            is_unreadable=claimed is not None and not origin,
            keeps_identities=self._keeps_identities,
        )
        if is_replaced and not self._has_replaced:
            self._has_replaced = True
            self._tell_of_replaced(message.topic, origin, str(claimed))
        return reason_code

    def _tell_of_replaced(self, topic: str, origin: str, claimed: str) -> None:
        """Tells the client with its next acknowledgement, once per connection, that a message has a new identity."""
        self._remark = f"not its own identity: messages of {claimed[:ORIGIN_SAID]!r} get a new one here"
        what = about(client=self._answers.publisher.client_id, topic=topic, origin=claimed)
        reason = "no rule lets the client bring it" if origin else "it cannot be read"
        logger.warning("identity replaced: %s", reason, extra=what)

    def learn(self, message: Message) -> str:
        """Learns from a message that is accepted; returns the reason string of its acknowledgement."""
        self._topics.learn(message, self._permissions.may_vouch)
        remark, self._remark = self._remark, ""
        return remark

    def refuse(self, packet: Publish, message: Message, reason_code: int) -> None:
        """Refuses a message.

        MQTT 3.1.1 has no reason codes [3.1.1 MQTT-3.3.5-2]. What may be taken later stays unacknowledged there. What
        the rules deny is acknowledged once its range is durable, or its client would send it for ever.
        """
        self._log(reason_code, describe(reason_code), topic=message.topic, origin=message.origin)
        identifier, is_mqtt_5 = packet.packet_identifier, self._answers.protocol.protocol_level == MQTT_5
        if identifier and reason_code == NOT_AUTHORIZED and not is_mqtt_5:
            self._answers.accept_unstored(packet, self._publishing.set_aside(message, self._permissions))
            return
        self._publishing.refuse(message, self._permissions)
        if identifier is not None and is_mqtt_5:
            self._answers.refuse(packet, reason_code)
        elif reason_code != (NOT_AUTHORIZED if identifier is None else QUOTA_EXCEEDED):
            self._disconnect(reason_code)

    def refuse_unplaced(self, packet: Publish, reason_code: int, problem: str) -> None:
        """Refuses a message that is in no stream that the client may use here; ``problem`` says why."""
        self._log(reason_code, describe(reason_code), topic=packet.topic, reason=problem)
        if packet.packet_identifier is None or self._answers.protocol.protocol_level != MQTT_5:
            self._disconnect(reason_code)
        else:
            self._answers.refuse(packet, reason_code, problem)

    def begin_again(self) -> None:
        """Ends the connection: the client is to send again what was forgotten, as too much waited."""
        self._disconnect(SERVER_BUSY)

    def _log(self, reason_code: int, problem: str, **what: str) -> None:
        """Logs a refusal, unless the one before had the same reason code."""
        if reason_code != self._said:
            self._said = reason_code
            fields = about(client=self._answers.publisher.client_id, **what)
            logger.warning("messages refused: %s", problem, extra=fields)


def _leave_open(reason_code: int) -> None:
    """A message of QoS 0 that cannot be taken ends no connection to a broker."""
