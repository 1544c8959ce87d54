"""The list of checks. Each is a coroutine function of the broker under check, with the clauses that it shows."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wire.codec.packets import MQTT_3_1_1, MQTT_5

VERSIONS = {"3.1.1": MQTT_3_1_1, "5": MQTT_5}

Function = Callable[..., Awaitable[None]]


@dataclass(frozen=True)
class Check:
    """One check on one version of MQTT; ``arguments`` has the arguments of its case, if it has several."""

    name: str
    version: str
    clauses: tuple[str, ...]
    function: Function
    arguments: tuple[Any, ...] = ()


registered: list[Check] = []
"""The checks of the chapters that have been imported."""


def check(v3: str = "", v5: str = "", cases: Mapping[str, Any] | None = None) -> Callable[[Function], Function]:
    """Registers a check for each version that has clauses.

    Args:
        v3: the statements of MQTT 3.1.1 that it shows, as in "3.1.0-2 4.8.0-1".
        v5: the statements of MQTT 5.0.
        cases: {name: what the function gets besides the broker}: each is a check of its own.
    """

    def register(function: Function) -> Function:
        for version, clauses in (("3.1.1", v3), ("5", v5)):
            tags = tuple(f"MQTT-{clause}" for clause in clauses.split())
            if not tags:
                continue
            if cases is None:
                registered.append(Check(function.__name__, version, tags, function))
            for case, value in (cases or {}).items():
                registered.append(Check(f"{function.__name__}[{case}]", version, tags, function, (value,)))
        return function

    return register
