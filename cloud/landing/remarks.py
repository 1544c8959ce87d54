"""What a lander says to people: one line at a time, and one line a kind of fault, however many messages have it."""

from collections.abc import Callable, Iterator

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


class Notices:
    """The lines of a lander, and what is wrong until it is over.

    Args:
        say: prints a line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told: str | None = None
        self._faults: dict[str, str] = {}

    def say(self, text: str) -> None:
        """Says a line."""
        self._say(printable(text))

    def say_once(self, text: str) -> None:
        """Says a line, but not twice in a row."""
        if text != self._told:
            self._told = text
            self.say(text)

    def expect(self, what: str, text: str) -> None:
        """Has `problems` return a text until `settle`, without saying it."""
        self._faults[what] = printable(text)

    def complain(self, what: str, text: str, *, is_new: bool = False) -> None:
        """Says what is wrong, if it is new in any case, and has `problems` return it until `settle`."""
        self.expect(what, text)
        if is_new:
            self._told = None
        self.say_once(text)

    def settle(self, what: str, *, is_new: bool = True) -> None:
        """Something works again. If that is new, the next complaint is said in any case."""
        self._faults.pop(what, None)
        if is_new:
            self._told = None

    def problems(self) -> list[str]:
        """Returns what is wrong now, a line each; any thread may ask."""
        return list(self._faults.values())


def quoted(text: str) -> str:
    """Returns a text from outside in quotes, with escapes for what is not printable, cut where it is long."""
    return repr(text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…")


def printable(text: str, most: int = LINE_MAX) -> str:
    """Returns a text on one line that a terminal shows as it is, cut where it is long."""
    shown = text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return shown if len(shown) <= most else shown[:most] + "…"
