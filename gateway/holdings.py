"""What clients make the gateway keep in memory for as long as they like: one account for each owner.

An owner is a user, with all sessions under that name; clients without one are an owner by their address. So a client
gains nothing by another client identifier. By owner count as well the rate (``gateway.pace``) and the part of the store
(``gateway.store.shares``).
"""

from gateway.failures import network_of

OWNERS_FULL = 4  # so many owners with as much as they may have are what all may have together


def owner_of(user: str | None, host: str) -> str:
    """Returns who answers for a client: its user, or where it has none the address that it comes from."""
    return f"user {user}" if user is not None else f"address {network_of(host)}"


class Holdings:
    """Counts the bytes of subscriptions, wills, unfinished packets and what is owed of retained messages by owner.

    All owners together have a whole. Where it is taken, an owner may still have an equal part of it, so that none is
    refused for what the others have. The k-th of them to grow last found k owners at least, and so has 1/k of the whole
    at most: n owners have no more than (1 + 1/2 + ... + 1/n) times the whole.

    Args:
        most: bytes that one owner may have the gateway keep.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._sizes: dict[str, int] = {}
        self._whole = 0

    def fits(self, owner: str, size: int) -> bool:
        """Whether so many bytes more are within the owner's limit, and within the whole or the owner's part of it."""
        wanted, whole = self.of(owner) + size, OWNERS_FULL * self._most
        owners = len(self._sizes) + (owner not in self._sizes)
        return wanted <= self._most and (self._whole + size <= whole or wanted <= whole // owners)

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


class Account:
    """What one session, or one connection, has the gateway keep: it counts for its ``owner``, until it is closed.

    Args:
        holdings: where it counts.
    """

    def __init__(self, holdings: Holdings) -> None:
        self._holdings: Holdings | None = holdings
        self.owner = ""
        self._size = 0

    def fits(self, size: int) -> bool:
        """Whether the owner may have so many bytes more."""
        return self._holdings is not None and self._holdings.fits(self.owner, size)

    def add(self, size: int) -> None:
        """Counts so many bytes more; fewer where ``size`` is negative."""
        if self._holdings is not None:
            self._size += size
            self._holdings.add(self.owner, size)

    def give(self, owner: str) -> None:
        """From now on it counts for this owner."""
        if self._holdings is not None and owner != self.owner:
            self._holdings.add(self.owner, -self._size)
            self._holdings.add(owner, self._size)
            self.owner = owner

    def close(self) -> None:
        """The session or the connection ends: nothing is kept for it any more."""
        self.add(-self._size)
        self._holdings = None
