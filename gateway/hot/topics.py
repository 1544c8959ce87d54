"""The topic names that one client publishes to, by their bytes."""

from gateway.topic_memory import remember

TOPICS_REMEMBERED = 4096


class Topics(dict[bytes, str]):
    """Those that are well-formed and to which the client may publish now, as far as it has done so."""

    _rules: object = None

    def keep_to(self, rules: object) -> None:
        """Forgets them all if the access rules are others than before."""
        if rules is not self._rules:
            self._rules = rules
            self.clear()

    def learn(self, name: str) -> None:
        """A PUBLISH to this topic name was taken."""
        remember(self, name.encode(), name, TOPICS_REMEMBERED)
