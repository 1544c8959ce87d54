"""Where Holdfast keeps things on a machine (the XDG base directories) and where its own sources are."""

import os
from pathlib import Path


def source_root() -> Path:
    """The folder that holds our top-level packages: a checkout, or site-packages."""
    return Path(__file__).resolve().parents[1]


def state_directory() -> Path:
    """What should outlive a restart: tables, stores. Not created here."""
    return _xdg_directory("XDG_STATE_HOME", ".local/state")


def cache_directory() -> Path:
    """What can be fetched or made again at any time. Not created here."""
    return _xdg_directory("XDG_CACHE_HOME", ".cache")


def demo_directory() -> Path:
    """Where the last demo left its tables and its chart. Not created here."""
    return state_directory() / "demo"


def memory_folder() -> str | None:
    """For files that need outlive no more than a SIGKILL: there every sync is free. None where there is none."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _xdg_directory(variable: str, fallback: str) -> Path:
    # The base directory specification says to ignore a relative path.
    base = Path(os.environ.get(variable, ""))
    return (base if base.is_absolute() else Path.home() / fallback) / "holdfast"
