"""What the tests of the store share."""

import pytest

from gateway.store.reader import RowCache


@pytest.fixture
def from_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is in memory, as behind a flood: every read goes to the file."""
    monkeypatch.setattr(RowCache, "behind", lambda *_: iter(()))
