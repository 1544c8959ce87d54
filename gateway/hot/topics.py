"""The topic names that one client publishes to, and the origins that its messages name, by their bytes."""

from gateway.message import Message
from gateway.topic_memory import remember

TOPICS_REMEMBERED = 4096
ORIGINS_REMEMBERED = 1024


class Topics(dict[bytes, str]):
    """Those that are well-formed and to which the client may publish now, as far as it has done so.

    ``origins`` are those of the identities that it has brought and may bring.
    """

    _rules: object = None

    def __init__(self) -> None:
        self.origins: dict[bytes, None] = {}

    def keep_to(self, rules: object) -> None:
        """Forgets them all if the access rules are others than before."""
        if rules is not self._rules:
            self._rules = rules
            self.clear()
            self.origins.clear()

    def learn(self, message: Message) -> None:
        """A message was taken, and has the identity that it brought, or none yet."""
        remember(self, message.topic.encode(), message.topic, TOPICS_REMEMBERED)
        if message.origin:
            remember(self.origins, message.origin.encode(), None, ORIGINS_REMEMBERED)
