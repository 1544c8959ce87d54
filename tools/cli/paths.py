"""Where Holdfast keeps things on a machine (the XDG base directories) and where its own sources are."""

import os
from pathlib import Path


def source_root() -> Path:
    """The folder that holds our top-level packages: a checkout, or site-packages."""
    return Path(__file__).resolve().parents[2]


def state_directory() -> Path:
    """For files that outlive a restart: tables, stores. The folder may not exist yet."""
    return _xdg_directory("XDG_STATE_HOME", ".local/state")


def cache_directory() -> Path:
    """For files that can be fetched or made again at any time. The folder may not exist yet."""
    return _xdg_directory("XDG_CACHE_HOME", ".cache")


def demo_directory() -> Path:
    """Where the last demo left its tables and its chart. The folder may not exist yet."""
    return state_directory() / "demo"


def memory_folder() -> str | None:
    """For files that only have to survive a SIGKILL: a folder in memory, where a sync takes no time. None if there is
    none."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _xdg_directory(variable: str, fallback: str) -> Path:
    # The base directory specification says to ignore a relative path.
    base = Path(os.environ.get(variable, ""))
    return (base if base.is_absolute() else Path.home() / fallback) / "holdfast"
