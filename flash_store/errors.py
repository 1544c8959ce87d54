"""What can go wrong with the store.

StoreError
├── StoreFull         no room for a new message until some are acknowledged
│   └── HeapFull      no RAM to store the message: it is dropped, and a gap tells so
├── StoreCorrupt      the device holds no store that this code can mount
├── DeviceFailed      the device did not do what it was told
└── MessageTooLarge   the message fits into no sector
"""


class StoreError(Exception):
    """Base of all errors of the store."""


class StoreFull(StoreError):
    """No room for a new message until some are acknowledged."""


class HeapFull(StoreFull):
    """The heap has no room to store the message: it is dropped, and a gap tells so."""


class StoreCorrupt(StoreError):
    """The device holds no store that this code can mount; the text says why."""


class DeviceFailed(StoreError):
    """The block device did not do what it was told."""


class MessageTooLarge(StoreError):
    """The message fits into no sector of this device."""
