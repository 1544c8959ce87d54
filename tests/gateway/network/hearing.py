"""A neighbour that follows the announcements of a gateway at once, and has nothing else to do."""

from gateway.network.announcements import Announced, Changes, Heard

NOTHING = Changes([], [], [])


class Listener:
    """The end of a link that hears announcements. ``filters`` are what the other end wants, ``heard`` is what it has
    heard.
    """

    def __init__(self) -> None:
        self.filters: dict[str, None] = {}
        self.heard = Heard(self.filters)

    def take(self, payload: bytes) -> Changes:
        """Follows an announcement; returns what it has changed, nothing while it goes on. Raises BadAnnouncement."""
        announced = self.heard.take(payload)
        if announced is None:
            return NOTHING
        changes = changes_of(self.heard, announced)
        self.filters.update(dict.fromkeys(changes.added))
        for topic_filter in changes.removed:
            del self.filters[topic_filter]
        self.heard.mark = announced.mark
        return changes


def changes_of(heard: Heard, announced: Announced) -> Changes:
    """Returns what an announcement changes. Raises BadAnnouncement."""
    steps = heard.changes(announced)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Changes = end.value
            return found
