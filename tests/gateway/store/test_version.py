"""A store of another version is refused, and left as it is."""

import sqlite3
from pathlib import Path

import pytest

from gateway.errors import StoreError
from gateway.message import Message
from gateway.store.log import MessageLog
from gateway.store.schema import SCHEMA_VERSION
from tests.gateway.store.support import opened


@pytest.mark.parametrize("version", [1, 5, 99])
async def test_a_store_that_this_program_does_not_know_is_refused_and_left_alone(tmp_path: Path, version: int) -> None:
    async with opened(tmp_path) as log:
        await log.append(Message("a", b""))
    connection = sqlite3.connect(tmp_path / "messages.sqlite")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    before = (tmp_path / "messages.sqlite").read_bytes()
    with pytest.raises(
        StoreError, match=rf"messages.sqlite: of version {version}, and this gateway reads version {SCHEMA_VERSION}: "
    ):
        await MessageLog.open(tmp_path, origin="gw")
    assert (tmp_path / "messages.sqlite").read_bytes() == before
