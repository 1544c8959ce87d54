"""The memory that clients make the gateway hold for as long as they like, counted by owner.

An owner is a user, with all its sessions. Clients without a user share an owner by their address. So a client gains
nothing by using another client identifier. Rates (``gateway.loop.pace``) and quotas of the store
(``gateway.store.client_quotas``) are counted by owner too.
"""

from sys import intern

from gateway.port import network_of

OWNERS_FULL = 4  # all owners together may hold as much as this many owners at their limit


def owner_of(user: str | None, host: str) -> str:
    """Returns the owner of a client: its user, or without one the address that it comes from.

    All its clients have the same text: each keeps it in several places.
    """
    return intern(f"user {user}" if user is not None else f"address {network_of(host)}")


class Holdings:
    """Counts by owner the bytes of subscriptions, wills, unfinished packets and retained messages not sent yet.

    All owners together have a limit, the whole. When it is reached, an owner may still hold an equal part of it, so
    that no owner is refused because of what the others hold. The k-th owner to grow last found k owners at least, and
    so holds 1/k of the whole at most: n owners hold no more than (1 + 1/2 + ... + 1/n) times the whole.

    Args:
        most: bytes that one owner may hold.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.sizes: dict[str, int] = {}
        self._whole = 0

    def fits(self, owner: str, size: int) -> bool:
        """Whether ``size`` more bytes are within the owner's limit, and within the whole or the owner's part of it."""
        wanted, whole = self.of(owner) + size, OWNERS_FULL * self._most
        owners = len(self.sizes) + (owner not in self.sizes)
        return wanted <= self._most and (self._whole + size <= whole or wanted <= whole // owners)

    def add(self, owner: str, size: int) -> None:
        """Counts ``size`` more bytes for an owner; a negative ``size`` counts fewer."""
        self._whole += size
        left = self.of(owner) + size
        if left:
            self.sizes[owner] = left
        else:
            self.sizes.pop(owner, None)

    def of(self, owner: str) -> int:
        """Returns the bytes that an owner holds."""
        return self.sizes.get(owner, 0)


class Holding:
    """The bytes that one session or one connection holds, ``size``. They count for its ``owner`` until it is closed.

    Args:
        holdings: counts them by owner.
    """

    __slots__ = ("_holdings", "owner", "size")

    def __init__(self, holdings: Holdings) -> None:
        self._holdings: Holdings | None = holdings
        self.owner = ""
        self.size = 0

    def fits(self, size: int) -> bool:
        """Whether the owner may hold ``size`` more bytes."""
        return self._holdings is not None and self._holdings.fits(self.owner, size)

    def add(self, size: int) -> None:
        """Counts ``size`` more bytes; a negative ``size`` counts fewer."""
        if self._holdings is not None:
            self.size += size
            self._holdings.add(self.owner, size)

    def give(self, owner: str) -> None:
        """Counts its bytes for this owner from now on."""
        if self._holdings is not None and owner != self.owner:
            self._holdings.add(self.owner, -self.size)
            self._holdings.add(owner, self.size)
            self.owner = owner

    def close(self) -> None:
        """Counts nothing any more: the session or the connection has ended."""
        self.add(-self.size)
        self._holdings = None
