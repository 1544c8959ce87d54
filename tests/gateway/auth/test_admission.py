"""Who comes in, and as whom."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.accounts import make_account, save_account
from gateway.doorkeeper import Doorkeeper, Refused
from gateway.errors import ConfigError
from gateway.port import Visitor
from tests.gateway.scram_client import final
from wire.packets import Connect, Will
from wire.properties import AUTHENTICATION_DATA, AUTHENTICATION_METHOD, RESPONSE_TOPIC
from wire.reasons import BAD_USER_NAME_OR_PASSWORD, CLIENT_IDENTIFIER_NOT_VALID, NOT_AUTHORIZED

STRANGER = Visitor("192.0.2.1")
GUEST = Visitor("127.0.0.1", may_be_anonymous=True)
ALICE: dict[str, Any] = {"username": "alice", "password": b"pencil"}
SCRAM = {AUTHENTICATION_METHOD: "SCRAM-SHA-256", AUTHENTICATION_DATA: b"n,,n=alice,r=abc"}


@asynccontextmanager
async def doorkeeper_of(folder: Path, rules: str | None = None) -> AsyncIterator[Doorkeeper]:
    """Alice has an account."""
    save_account(folder / "accounts", make_account("alice", b"pencil", with_scram=True))
    if rules is not None:
        (folder / "access").write_text(rules)
    doorkeeper = Doorkeeper(folder / "accounts", None if rules is None else folder / "access")
    try:
        yield doorkeeper
    finally:
        await doorkeeper.close()


async def admitted(doorkeeper: Doorkeeper, visitor: Visitor, client_id: str = "c1", **connect: Any) -> str | int | None:
    """The user that somebody comes in as, or the reason code of who does not."""
    try:
        return (await doorkeeper.admit(Connect(client_id, **connect), visitor, client_id or "assigned")).user
    except Refused as refused:
        return refused.reason_code


def logged_in(
    doorkeeper: Doorkeeper, visitor: Visitor = STRANGER, password: bytes = b"pencil", **connect: Any
) -> str | int | None:
    """The same by SCRAM."""
    packet = Connect("c1", properties=SCRAM, **connect)
    try:
        login, first = doorkeeper.begin_scram(packet, visitor)
        permissions, proof = doorkeeper.finish_scram(packet, visitor, "c1", login, final(first, password))
    except Refused as refused:
        return refused.reason_code
    assert proof.startswith(b"v=")
    return permissions.user


async def test_a_stranger_has_to_log_in(tmp_path: Path) -> None:
    async with doorkeeper_of(tmp_path) as doorkeeper:
        assert await admitted(doorkeeper, STRANGER, **ALICE) == "alice"
        assert await admitted(doorkeeper, STRANGER) == NOT_AUTHORIZED
        assert await admitted(doorkeeper, STRANGER, username="alice") == BAD_USER_NAME_OR_PASSWORD
        assert await admitted(doorkeeper, STRANGER, password=b"pencil") == BAD_USER_NAME_OR_PASSWORD
        assert await admitted(doorkeeper, STRANGER, username="alice", password=b"") == BAD_USER_NAME_OR_PASSWORD


async def test_where_nobody_has_an_account_no_name_is_believed(tmp_path: Path) -> None:
    doorkeeper = Doorkeeper()
    assert doorkeeper.authentication_methods == ()
    assert await admitted(doorkeeper, STRANGER, **ALICE) == NOT_AUTHORIZED
    assert await admitted(doorkeeper, STRANGER) == NOT_AUTHORIZED
    assert await admitted(doorkeeper, GUEST, **ALICE) is None


async def test_who_may_be_anonymous_but_gives_a_name_has_to_prove_it(tmp_path: Path) -> None:
    async with doorkeeper_of(tmp_path) as doorkeeper:
        assert await admitted(doorkeeper, GUEST) is None
        assert await admitted(doorkeeper, GUEST, **ALICE) == "alice"
        assert await admitted(doorkeeper, GUEST, username="alice") == BAD_USER_NAME_OR_PASSWORD
        assert await admitted(doorkeeper, GUEST, username="bob", password=b"x") == BAD_USER_NAME_OR_PASSWORD


async def test_a_certificate_is_a_name_that_no_other_name_replaces(tmp_path: Path) -> None:
    bob = Visitor("192.0.2.1", certificate_user="bob")
    async with doorkeeper_of(tmp_path) as doorkeeper:
        assert await admitted(doorkeeper, bob) == "bob"
        assert await admitted(doorkeeper, bob, username="bob") == "bob"
        assert await admitted(doorkeeper, bob, **ALICE) == NOT_AUTHORIZED
        assert logged_in(doorkeeper, bob) == NOT_AUTHORIZED
        assert logged_in(doorkeeper, Visitor("192.0.2.1", certificate_user="alice")) == "alice"


async def test_scram_lets_in_who_knows_the_password_under_one_name(tmp_path: Path) -> None:
    async with doorkeeper_of(tmp_path) as doorkeeper:
        assert doorkeeper.authentication_methods == ("SCRAM-SHA-256",)
        assert logged_in(doorkeeper) == "alice"
        assert logged_in(doorkeeper, username="alice") == "alice"
        assert logged_in(doorkeeper, username="bob") == NOT_AUTHORIZED
        assert logged_in(doorkeeper, password=b"wrong") == NOT_AUTHORIZED
        with pytest.raises(Refused, match="not SCRAM's"):
            doorkeeper.begin_scram(Connect("c1", properties={AUTHENTICATION_METHOD: "SCRAM-SHA-256"}), STRANGER)


async def test_rules_on_client_identifiers_count_however_one_logs_in(tmp_path: Path) -> None:
    async with doorkeeper_of(tmp_path, "allow * connect %u-*\n") as doorkeeper:
        assert await admitted(doorkeeper, STRANGER, "alice-1", **ALICE) == "alice"
        assert await admitted(doorkeeper, STRANGER, "bob-1", **ALICE) == CLIENT_IDENTIFIER_NOT_VALID
        assert await admitted(doorkeeper, STRANGER, "", **ALICE) == CLIENT_IDENTIFIER_NOT_VALID
        assert logged_in(doorkeeper) == CLIENT_IDENTIFIER_NOT_VALID


async def test_a_will_needs_the_rights_of_a_publish(tmp_path: Path) -> None:
    rules = "allow * publish state/%c\nallow * subscribe answers/%c\n"
    async with doorkeeper_of(tmp_path, rules) as doorkeeper:

        async def with_will(topic: str, **properties: Any) -> str | int | None:
            named = {RESPONSE_TOPIC: properties["answers_to"]} if properties else {}
            return await admitted(doorkeeper, STRANGER, will=Will(topic, b"gone", properties=named), **ALICE)

        assert await with_will("state/c1") == "alice"
        assert await with_will("state/c1", answers_to="answers/c1") == "alice"
        assert await with_will("state/c2") == NOT_AUTHORIZED
        assert await with_will("$SYS/broker/uptime") == NOT_AUTHORIZED
        assert await with_will("state/c1", answers_to="locks/front") == NOT_AUTHORIZED


async def test_an_assigned_client_identifier_is_filled_in_like_any_other(tmp_path: Path) -> None:
    async with doorkeeper_of(tmp_path, "allow * publish state/%c\n") as doorkeeper:
        permissions = await doorkeeper.admit(Connect("", **ALICE), STRANGER, "hf-1234")
        assert permissions.may_publish("state/hf-1234")


async def test_a_reload_takes_up_both_files_and_names_who_has_to_go(tmp_path: Path) -> None:
    async with doorkeeper_of(tmp_path, "allow * publish a\n") as doorkeeper:
        permissions = await doorkeeper.admit(Connect("c1", **ALICE), STRANGER, "c1")
        (tmp_path / "access").write_text("allow * publish b\n")
        save_account(tmp_path / "accounts", make_account("alice", b"brush", with_scram=False))
        assert doorkeeper.reload() == {"alice"}
        assert permissions.may_publish("b")
        assert await admitted(doorkeeper, STRANGER, **ALICE) == BAD_USER_NAME_OR_PASSWORD
        (tmp_path / "access").write_text("nonsense\n")
        with pytest.raises(ConfigError, match="access:1: expected"):
            doorkeeper.reload()
        assert permissions.may_publish("b")
