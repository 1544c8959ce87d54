"""QoS 2 messages that the device has received and the peer has not released. Clauses in brackets are SPEC.md's."""

import struct

from flash_store.errors import MessageTooLarge, StoreCorrupt
from flash_store.settings import RESERVED

_KEY = RESERVED + "received"  # packet identifiers, u16 each


class Incoming:
    """The packet identifiers of these messages, `identifiers`, in the order of arrival [Q2].

    `settings` are the log's. There is one such object for a log at a time.
    """

    def __init__(self, settings) -> None:
        self._settings = settings
        try:
            value = settings.get(_KEY) or b""
        except StoreCorrupt:
            value = b""
        self.identifiers = list(struct.unpack(f"<{len(value) // 2}H", value))

    def __contains__(self, identifier: int) -> bool:
        return identifier in self.identifiers

    def add(self, identifier: int) -> None:
        """Notes that a message with this packet identifier was received; durable on return, before PUBREC is sent.

        Raises StoreFull, MessageTooLarge, DeviceFailed.
        """
        if identifier not in self.identifiers:
            if 4 * len(self.identifiers) >= self._settings.room:
                raise MessageTooLarge(f"{len(self.identifiers)} packet identifiers are remembered already")
            self._change(self.identifiers + [identifier])

    def remove(self, identifier: int) -> None:
        """Notes that PUBREL came for this packet identifier; durable on return, before PUBCOMP is sent.

        Raises StoreFull, DeviceFailed.
        """
        if identifier in self.identifiers:
            self._change([other for other in self.identifiers if other != identifier])

    def _change(self, identifiers: list) -> None:
        self._settings.put(_KEY, struct.pack(f"<{len(identifiers)}H", *identifiers))
        self.identifiers = identifiers
