"""Names of strangers in HTML. Devices choose their names and topics, so each of them may be an attack."""

import unicodedata
from html import escape

SHOWN_MAX = 48  # characters of a name
WORDS_MAX = 400  # characters of a sentence, such as an error of a broker
MARKS_MAX = 2  # combining marks in a row; more of them cover the lines above
STAND_IN = "\ufffd"  # for a character that is not shown: a control character, or one that changes the direction


def shown(text: str, most: int = SHOWN_MAX) -> str:
    """Returns a text as HTML shows it, as it is also between the quotes of an attribute.

    Characters that are not printable have a stand-in: control characters, unknown ones, lone surrogates, and all that
    change the direction of what stands behind them. What is longer than ``most`` characters is cut, with an ellipsis.
    """
    cut = text[:most]
    if not (cut.isascii() and cut.isprintable()):
        cut = "".join(_plain(cut))
    return escape(cut) + ("…" if len(text) > most else "")


def name(text: str, most: int = SHOWN_MAX) -> str:
    """Returns a name as an element whose direction does not change that of the text around it."""
    return f"<bdi>{shown(text, most)}</bdi>"


def words(text: str) -> str:
    """Returns a sentence as HTML shows it; a name of a stranger may be in it."""
    return name(text, WORDS_MAX)


def _plain(text: str) -> list[str]:
    found: list[str] = []
    marks = 0
    for one in text:
        marks = marks + 1 if unicodedata.category(one) in ("Mn", "Me") else 0
        if marks <= MARKS_MAX:
            found.append(one if one.isprintable() else STAND_IN)
    return found
