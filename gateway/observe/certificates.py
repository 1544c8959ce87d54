"""Certificates that are out of date, or soon will be: listeners' own as they use them, and routes' as in the files."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from host.pem import Validity

Shown = tuple[str, Validity]
"""What shows a certificate, such as a route, and its validity."""


class Certificates:
    """Looks at validities when it is asked, and never in between.

    Args:
        listeners: returns the certificates, and lists of revoked ones, that listeners use now.
    """

    def __init__(self, listeners: Callable[[], Sequence[Shown]]) -> None:
        self._listeners = listeners
        self.routes: Callable[[], Sequence[Shown]] = tuple
        """Returns the certificates of routes."""
        self.page: Callable[[], Sequence[Shown]] = tuple
        """Returns the certificates of the status page."""

    def problems(self) -> list[str]:
        """Returns the certificates that are out of date, a line each."""
        return self._lines(Validity.problem)

    def notes(self) -> list[str]:
        """Returns the certificates that are out of date soon, a line each."""
        return self._lines(Validity.note)

    def _lines(self, said: Callable[[Validity, datetime], str]) -> list[str]:
        now = datetime.now(UTC)
        shown = (*self._listeners(), *self.page(), *self.routes())
        return list(dict.fromkeys(f"{what}: {text}" for what, validity in shown if (text := said(validity, now))))
