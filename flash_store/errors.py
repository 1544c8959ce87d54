"""The errors of the store.

StoreError
├── StoreFull         no room for a new message until some are acknowledged
│   └── HeapFull      no RAM to store the message: it is dropped, and a gap reports it
├── StoreCorrupt      the device holds no store that this code can mount
├── DeviceFailed      the device did not carry out an operation
└── MessageTooLarge   the message does not fit into a sector
"""


class StoreError(Exception):
    """Base of all errors of the store."""


class StoreFull(StoreError):
    """No room for a new message until some are acknowledged."""


POLICIES = ("reject_new", "drop_oldest")  # what `Log.append` does when no room is left
MIN_SECTORS = 6  # a device with fewer raises DeviceFailed


class HeapFull(StoreFull):
    """The heap has no room to store the message: it is dropped, and a gap reports it."""


class StoreCorrupt(StoreError):
    """The device holds no store that this code can mount; the text says why."""


class DeviceFailed(StoreError):
    """The block device did not carry out an operation."""


class MessageTooLarge(StoreError):
    """The message does not fit into a sector of this device."""
