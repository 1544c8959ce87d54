"""The topic names that one client publishes to, by their bytes."""

TOPICS_REMEMBERED = 4096
TOPIC_SIZE_MAX = 512  # bytes; a longer one is rare, and remembering many costs memory


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
        encoded = name.encode()
        if len(encoded) <= TOPIC_SIZE_MAX:
            if len(self) >= TOPICS_REMEMBERED:
                self.clear()
            self[encoded] = name
