"""What clients make the gateway keep in memory for as long as they like: one account for each owner.

An owner is a user, with all sessions under that name; clients without one are an owner by their address. So a client
gains nothing by another client identifier.
"""

from gateway.failures import network_of

OWNERS_FULL = 4  # so many owners with as much as they may have are the most of all together


def owner_of(user: str | None, host: str) -> str:
    """Returns who answers for a client: its user, or where it has none the address that it comes from."""
    return f"user {user}" if user is not None else f"address {network_of(host)}"


class Holdings:
    """Counts the bytes of subscriptions and wills by owner.

    Args:
        most: bytes that one owner may have the gateway keep.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._sizes: dict[str, int] = {}
        self._whole = 0

    def fits(self, owner: str, size: int) -> bool:
        """Whether so many bytes more are within the limits, of the owner and of all."""
        return self.of(owner) + size <= self._most and self._whole + size <= OWNERS_FULL * self._most

    def add(self, owner: str, size: int) -> None:
        """Counts so many bytes more; fewer where ``size`` is negative."""
        self._whole += size
        left = self.of(owner) + size
        if left:
            self._sizes[owner] = left
        else:
            self._sizes.pop(owner, None)

    def of(self, owner: str) -> int:
        """Returns the bytes that are kept for an owner."""
        return self._sizes.get(owner, 0)
