"""The types of `device/library.py`, which is `holdfast` on a board: MicroPython has no `typing`, so they are here."""

from collections.abc import Callable
from typing import Any

from device.values import ConfigError as ConfigError
from flash_store.errors import DeviceFailed as DeviceFailed
from flash_store.errors import MessageTooLarge as MessageTooLarge
from flash_store.errors import StoreError as StoreError
from flash_store.errors import StoreFull as StoreFull

def start(
    config_path: str = "device.json", on_message: Callable[[str, bytes], dict[str, Any] | None] | None = None
) -> None: ...
def advance(longest_ms: int | None = None) -> bool: ...
def publish(topic: str, payload: bytes, qos: int = 1) -> int: ...
def landed() -> int: ...
def log(text: str) -> None: ...
