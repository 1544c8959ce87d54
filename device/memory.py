"""The heap of a board, on which every KiB counts; CPython needs none of this."""

import gc
import sys

COLLECT_BYTES = 4096  # allocated between two collections: what stays lies dense, and large pieces find a place


def keep_dense() -> None:
    """To be called before the modules that stay are imported."""
    if hasattr(gc, "threshold"):
        gc.threshold(COLLECT_BYTES)


def leave(*modules: str) -> None:
    """What is needed at the start alone leaves the heap; whoever imports such a module again gets it anew."""
    if not hasattr(gc, "threshold"):
        return
    for name in modules:
        if sys.modules.pop(name, None) is not None:
            package, _, own = name.rpartition(".")
            delattr(sys.modules[package], own)
    gc.collect()
