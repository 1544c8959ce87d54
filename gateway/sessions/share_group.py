"""The sessions that share one subscription."""

import sys
from collections import OrderedDict

from gateway.message import Message
from gateway.sessions.session import Session
from gateway.store import GroupCursor, MessageLog, consumer_names, drops, grant_by


class ShareGroup:
    """The sessions that subscribe to one topic filter under one share name [section 4.8.2].

    One durable cursor feeds the members that have room. It keeps messages as long as the group has members, connected
    or not. A message that a member has not acknowledged when its connection ends goes to another member, and so does
    a message that the access rules deny to a member. A message that they deny to all members leaves a range.
    """

    def __init__(self, log: MessageLog, share_name: str, topic_filter: str) -> None:
        self.topic_filter = topic_filter
        self.name = f"$share/{share_name}/{topic_filter}"
        self.members: OrderedDict[Session, None] = OrderedDict()
        # A share name has no slash, so the name is unique [MQTT-4.8.2-1].
        # Packet identifiers belong to each member: a member that acknowledges nothing stops no other one.
        self.cursor = GroupCursor(
            log, f"{consumer_names.GROUP}{share_name}/{topic_filter}", [topic_filter], window=sys.maxsize
        )
        self.cursor.may_be_taken = self._may_any_receive
        self._log = log

    def _may_any_receive(self, topic: str) -> bool:
        return any(session.cursor.rights.may_receive(topic) for session in self.members)

    def offer(self, message: Message) -> None:
        """Sends a QoS 0 message to the next connected member that may receive it; members take turns."""
        is_any_here = False
        for session in self.members:
            if session.sender is not None:
                is_any_here = True
                if session.sender.may_send(message.topic):
                    self.members.move_to_end(session)
                    session.sender.send_now(message, grant_by([session.shared[self.name]], message))
                    return
        if is_any_here:
            self._log.drop(drops.FILTERED, self.cursor.consumer, message)
