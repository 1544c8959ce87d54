"""The checks: a file for each chapter of the standards, a function for each behaviour of a server."""

import importlib
import pkgutil

from tools.lab.check.suite import Check, registered


def load() -> list[Check]:
    """Returns all checks, chapter by chapter."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return list(registered)
