"""The keys of a ``[[route]]`` table that say how long it keeps what is acknowledged; all kinds of routes have them."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from uplink.config.receipt_key import problem_with_key

KEEP_KEYS = ("keep_max_bytes", "keep_max_age_s", "resend_after_s", "receipt_key")
KEEP_MAX_AGE_S, RESEND_AFTER_S = 30 * 86_400, 180  # where the configuration does not say


class KeepSettings(NamedTuple):
    """How long a route keeps what its broker has acknowledged, as the keys of the configuration say.

    ``hears_receipts``: they come down the route. Otherwise they are among what the gateway retains.
    """

    keep_max_bytes: int | None
    keep_max_age_s: int
    resend_after_s: int
    receipt_key: str | None = None
    hears_receipts: bool = True


class Keys(Protocol):
    """The keys, by their names."""

    @property
    def until(self) -> str: ...

    @property
    def keep_max_bytes(self) -> int | None: ...

    @property
    def keep_max_age_s(self) -> int | None: ...

    @property
    def resend_after_s(self) -> int | None: ...

    @property
    def receipt_key(self) -> str | None: ...


def keep_settings(keys: Keys, *, hears_receipts: bool) -> KeepSettings | None:
    """Returns how long a route keeps what is acknowledged, None: no longer."""
    if keys.until != "receipt":
        return None
    return KeepSettings(
        keys.keep_max_bytes,
        keys.keep_max_age_s or KEEP_MAX_AGE_S,
        keys.resend_after_s or RESEND_AFTER_S,
        keys.receipt_key,
        hears_receipts,
    )


def errors_in_keys(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the keys that need another one, or cannot be used, and why."""
    if values.get("until", "acknowledgement") != "receipt":
        for key in KEEP_KEYS:
            if values.get(key) is not None:
                yield key, 'it needs until = "receipt"'
    elif values.get("receipt_key") and (problem := problem_with_key(values["receipt_key"])):
        yield "receipt_key", problem
