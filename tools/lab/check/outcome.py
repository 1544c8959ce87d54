"""The outcomes of a check."""

from dataclasses import dataclass, field


class Failed(Exception):
    """The broker does not do what the standard demands."""

    def __init__(self, expected: str, came: str) -> None:
        super().__init__(f"expected {expected}; came {came}")
        self.expected = expected
        self.came = came


class Closed(Failed):
    """The broker closed the connection instead."""


class Skipped(Exception):
    """The broker announces that it lacks a feature that the check needs."""


class NoAccount(Exception):
    """The check needs a user and a password, and none were given."""


class NoBroker(Exception):
    """No broker at the address accepts this client; the text says what answered."""


@dataclass(frozen=True)
class Outcome:
    """One check's result on one version of MQTT.

    Attributes:
        name: the check's name, a sentence; behind it in brackets the case, where it has several.
        version: "3.1.1" or "5".
        clauses: the normative statements that it shows, as in "MQTT-3.1.0-2".
        result: "pass", "fail", "skip" (the broker does not offer it) or "unchecked" (it needs an account).
        expected, came: of a failure, in words; of a check without a verdict `came` says why.
    """

    name: str
    version: str
    clauses: tuple[str, ...] = field(repr=False)
    result: str = "pass"
    expected: str = ""
    came: str = ""
