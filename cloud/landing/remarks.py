"""What is wrong with messages, for people: one line a kind, however many messages there are."""

from collections.abc import Iterator

TEXT_MAX = 200  # characters of a text that came from outside
LINE_MAX = 480


class Remarks:
    """The kinds of faults since the last `take`, each with its first case and a count."""

    def __init__(self) -> None:
        self._cases: dict[str, tuple[str, int]] = {}

    def add(self, fault: str, topic: str, error: Exception | str) -> None:
        """Notes that a message of a topic has a fault; the error tells more."""
        case, count = self._cases.get(fault, ("", 0))
        self._cases[fault] = (case or f"{quoted(topic)}: {fault} ({printable(str(error), TEXT_MAX)})", count + 1)

    def take(self) -> Iterator[str]:
        """Yields a line for each kind, and forgets them."""
        cases, self._cases = self._cases, {}
        for case, count in cases.values():
            yield case if count == 1 else f"{case}, and {count - 1} more"


def quoted(text: str) -> str:
    """Returns a text from outside in quotes, with escapes for what is not printable, cut where it is long."""
    return repr(text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…")


def printable(text: str, most: int = LINE_MAX) -> str:
    """Returns a text on one line that a terminal shows as it is, cut where it is long."""
    shown = text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return shown if len(shown) <= most else shown[:most] + "…"
