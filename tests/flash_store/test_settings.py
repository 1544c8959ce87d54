"""Settings: small named values with the log's guarantees."""

import contextlib

import pytest

from flash_store.errors import MessageTooLarge, StoreCorrupt, StoreFull
from flash_store.log import Log
from tests.flash_store.support import formatted, mounted


def test_a_setting_has_its_last_value_after_a_mount() -> None:
    flash, log = mounted()
    log.settings.set("näme", b"old")
    log.settings.set("näme", b"new")
    log.settings.set("empty", b"")
    log.settings.set("gone", b"x")
    assert log.settings.remove("gone")
    assert not log.settings.remove("gone")
    for settings in (log.settings, Log(flash).settings):
        assert settings.keys() == ["empty", "näme"]
        assert settings.get("näme") == b"new"
        assert settings.get("empty") == b""
        assert settings.get("gone") is None


def test_settings_move_on_when_the_ring_goes_round() -> None:
    flash, log = mounted()
    log.settings.set("name", b"value")
    log.settings.set("gone", b"value")
    log.settings.remove("gone")
    while min(flash.erase_counts) < 4:
        log.acknowledge(log.append("t", b"x" * 60))
        log.flush()
        log.idle()
    for settings in (log.settings, Log(flash).settings):
        assert settings.keys() == ["name"]
        assert settings.get("name") == b"value"


def test_settings_change_any_number_of_times_while_messages_fill_the_store() -> None:
    flash, log = mounted()
    with contextlib.suppress(StoreFull):
        while True:
            log.append("t", b"x" * 60)
    full = list(log.messages())
    for number in range(300):
        log.settings.set("name", b"%d" % number)
    assert Log(flash).settings.get("name") == b"299"
    assert list(Log(flash).messages()) == full


def test_more_than_half_a_sector_of_settings_is_refused_and_changes_nothing() -> None:
    log = Log(formatted())
    log.settings.set("a", b"x" * 100)
    with pytest.raises(MessageTooLarge, match=r"setting 'b': all settings would take 240 bytes, 232 fit"):
        log.settings.set("b", b"x" * 80)
    assert log.settings.keys() == ["a"]
    log.settings.set("a", b"x" * 200)


@pytest.mark.parametrize("name", ["", "\x00gaps"])
def test_a_name_that_is_empty_or_the_stores_own_is_refused(name: str) -> None:
    log = Log(formatted())
    with pytest.raises(ValueError, match="a name is not empty and begins with no zero character"):
        log.settings.set(name, b"x")
    assert log.settings.keys() == []


def test_a_setting_that_rots_while_mounted_is_named() -> None:
    flash, log = mounted()
    log.settings.set("name", b"precious")
    at = flash.image.index(b"precious")
    flash.image[at] ^= 1
    with pytest.raises(StoreCorrupt, match="setting 'name' cannot be read any more"):
        log.settings.get("name")
