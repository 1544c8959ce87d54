"""Saves memory on the small heap of a board; on CPython these functions do nothing."""

import gc
import sys

COLLECT_BYTES = 4096  # collect garbage this often, so that long-lived objects lie densely and large blocks stay free


def keep_dense() -> None:
    """Makes garbage collections frequent; to be called before the long-lived modules are imported."""
    if hasattr(gc, "threshold"):
        gc.threshold(COLLECT_BYTES)


def leave(*modules: str) -> None:
    """Drops modules from the heap that only the start needs; a later import loads such a module again."""
    if not hasattr(gc, "threshold"):
        return
    for name in modules:
        if sys.modules.pop(name, None) is not None:
            package, _, own = name.rpartition(".")
            delattr(sys.modules[package], own)
    gc.collect()
