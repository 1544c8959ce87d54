"""Opens the folder at a path or at a URL."""

from pathlib import Path

from cloud.storage.local import LocalStorage
from cloud.storage.storage import Storage


def is_url(place: Path | str) -> bool:
    """Whether the place is a URL, and not a path."""
    return isinstance(place, str) and "://" in place


def check_place(place: Path | str) -> None:
    """Raises ValueError for a URL that is not that of an object store. Asks no store."""
    open_storage(place)


def open_storage(place: Path | str | Storage) -> Storage:
    """Returns the storage at a path, or at the URL of an object store. Raises ValueError."""
    if isinstance(place, str) and is_url(place):
        from cloud.storage.objects import ObjectStorage  # its library is of no use to local folders

        return ObjectStorage(place)
    return LocalStorage(Path(place)) if isinstance(place, Path | str) else place
