"""Which messages of one connection are known already, and which ones conflict with known messages."""

import logging

from gateway.connection.services import Services
from gateway.log_fields import about
from gateway.message import Message
from gateway.sessions.copies import Copies
from gateway.store import Masks, Standing, masks_of
from wire.bulk.content_digest import content_digest

logger = logging.getLogger(__name__)


def mask_of(message: Message) -> Masks:
    """Returns identity and digest of a message."""
    digest = content_digest(message.topic, message.payload)
    return masks_of([(message.origin, message.epoch, message.seq, digest)])


class KnownMessages:
    """Tells which messages of a connection repeat known ones, and which are conflicts.

    Args:
        services: the parts of the gateway that it uses.
        client_id: the client that sends the messages.
        copies: the copies of the link, if another gateway sends them.
    """

    __slots__ = ("_client_id", "_copies", "_services", "_told")

    def __init__(self, services: Services, client_id: str, copies: Copies | None) -> None:
        self._services = services
        self._client_id = client_id
        self._copies = copies
        self._told: tuple[str, int] | None = None  # origin and epoch of the conflict that was logged last

    def is_repeated(self, message: Message, standing: Standing) -> bool:
        """Whether a message that came over the link is not to be published, as it came before.

        One that is to be retained is not, if its topic has no retained message now: the former copy went with the
        interest in it, which is back. If the topic has this message it is, also where its identity is not known.
        """
        is_known = standing is Standing.STORED
        if standing is Standing.CONFLICT or not (message.retain and message.payload):
            return is_known
        assert self._copies is not None
        source = self._services.log.reader.retained_source(message.topic)
        if source is None or self._copies.is_outdated(message.topic):
            return False
        return is_known or source.identity == (message.origin, message.epoch, message.seq)

    def is_repeated_qos_0(self, message: Message) -> bool:
        """Does the same for a message of QoS 0, which waits for no commit. Counts and tells what it finds."""
        standing = self._services.log.seen.take_qos_0(mask_of(message))
        if standing is Standing.CONFLICT:
            self.tell_of_conflict(message)
        is_repeated = self.is_repeated(message, Standing.STORED if standing is Standing.PENDING else standing)
        self._services.counters.messages_duplicate += is_repeated
        return is_repeated

    def tell_of_conflict(self, message: Message) -> None:
        """Tells that another message came before with this identity: a line of the log for each origin that follows
        another one. This message is stored like a new one, and the tables set it aside.
        """
        self._services.counters.messages_conflict += 1
        if self._told != (message.origin, message.epoch):
            self._told = message.origin, message.epoch
            what = about(client=self._client_id, topic=message.topic, origin=message.origin)
            identity = f"{message.epoch:08x}/{message.seq}"
            logger.warning("conflict: another message came before with the identity %s", identity, extra=what)
