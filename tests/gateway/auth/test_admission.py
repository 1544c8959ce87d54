"""Admission: which clients may connect, and as which user."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.accounts import make_account, save_account
from gateway.auth.admission import AccessControl, Refused
from gateway.port import Visitor
from host.errors import ConfigError
from tests.gateway.auth.scram_client import final
from wire.codec.packets import Connect, Will
from wire.properties import AUTHENTICATION_DATA, AUTHENTICATION_METHOD, RESPONSE_TOPIC
from wire.reasons import BAD_USER_NAME_OR_PASSWORD, CLIENT_IDENTIFIER_NOT_VALID, NOT_AUTHORIZED

STRANGER = Visitor("192.0.2.1")
GUEST = Visitor("127.0.0.1", may_be_anonymous=True)
ALICE: dict[str, Any] = {"username": "alice", "password": b"pencil"}
SCRAM = {AUTHENTICATION_METHOD: "SCRAM-SHA-256", AUTHENTICATION_DATA: b"n,,n=alice,r=abc"}


@asynccontextmanager
async def doorkeeper_of(folder: Path, rules: str | None = None) -> AsyncIterator[AccessControl]:
    """Alice has an account."""
    save_account(folder / "accounts", make_account("alice", b"pencil", with_scram=True))
    if rules is not None:
        (folder / "access").write_text(rules)
    control = AccessControl(folder / "accounts", None if rules is None else folder / "access", gateway="gateway-1")
    try:
        yield control
    finally:
        await control.close()


async def admitted(control: AccessControl, visitor: Visitor, client_id: str = "c1", **connect: Any) -> str | int | None:
    """Returns the user that a client is admitted as, or the reason code of its refusal."""
    try:
        return (await control.admit(Connect(client_id, **connect), visitor, client_id or "assigned", "")).user
    except Refused as refused:
        return refused.reason_code


def logged_in(
    control: AccessControl, visitor: Visitor = STRANGER, password: bytes = b"pencil", **connect: Any
) -> str | int | None:
    """The same by SCRAM."""
    packet = Connect("c1", properties=SCRAM, **connect)
    try:
        login, first = control.begin_scram(packet, visitor)
        permissions, proof = control.finish_scram(packet, visitor, "c1", login, final(first, password), "")
    except Refused as refused:
        return refused.reason_code
    assert proof.startswith(b"v=")
    return permissions.user


async def test_a_stranger_has_to_log_in(tmp_path: Path) -> None:
    async with doorkeeper_of(tmp_path) as control:
        assert await admitted(control, STRANGER, **ALICE) == "alice"
        assert await admitted(control, STRANGER) == NOT_AUTHORIZED
        assert await admitted(control, STRANGER, username="alice") == BAD_USER_NAME_OR_PASSWORD
        assert await admitted(control, STRANGER, password=b"pencil") == BAD_USER_NAME_OR_PASSWORD
        assert await admitted(control, STRANGER, username="alice", password=b"") == BAD_USER_NAME_OR_PASSWORD


async def test_without_accounts_no_user_name_is_believed(tmp_path: Path) -> None:
    control = AccessControl(gateway="gateway-1")
    assert control.authentication_methods == ()
    assert await admitted(control, STRANGER, **ALICE) == NOT_AUTHORIZED
    assert await admitted(control, STRANGER) == NOT_AUTHORIZED
    assert await admitted(control, GUEST, **ALICE) is None


async def test_a_client_that_may_be_anonymous_but_gives_a_user_name_has_to_prove_it(tmp_path: Path) -> None:
    async with doorkeeper_of(tmp_path) as control:
        assert await admitted(control, GUEST) is None
        assert await admitted(control, GUEST, **ALICE) == "alice"
        assert await admitted(control, GUEST, username="alice") == BAD_USER_NAME_OR_PASSWORD
        assert await admitted(control, GUEST, username="bob", password=b"x") == BAD_USER_NAME_OR_PASSWORD


async def test_a_certificate_is_a_name_that_no_other_name_replaces(tmp_path: Path) -> None:
    bob = Visitor("192.0.2.1", certificate_user="bob")
    async with doorkeeper_of(tmp_path) as control:
        assert await admitted(control, bob) == "bob"
        assert await admitted(control, bob, username="bob") == "bob"
        assert await admitted(control, bob, **ALICE) == NOT_AUTHORIZED
        assert logged_in(control, bob) == NOT_AUTHORIZED
        assert logged_in(control, Visitor("192.0.2.1", certificate_user="alice")) == "alice"


async def test_scram_admits_a_client_that_knows_the_password_under_one_name(tmp_path: Path) -> None:
    async with doorkeeper_of(tmp_path) as control:
        assert control.authentication_methods == ("SCRAM-SHA-256",)
        assert logged_in(control) == "alice"
        assert logged_in(control, username="alice") == "alice"
        assert logged_in(control, username="bob") == NOT_AUTHORIZED
        assert logged_in(control, password=b"wrong") == NOT_AUTHORIZED
        with pytest.raises(Refused, match="not SCRAM's"):
            control.begin_scram(Connect("c1", properties={AUTHENTICATION_METHOD: "SCRAM-SHA-256"}), STRANGER)


async def test_rules_on_client_identifiers_count_for_every_way_to_log_in(tmp_path: Path) -> None:
    async with doorkeeper_of(tmp_path, "allow * connect %u-*\n") as control:
        assert await admitted(control, STRANGER, "alice-1", **ALICE) == "alice"
        assert await admitted(control, STRANGER, "bob-1", **ALICE) == CLIENT_IDENTIFIER_NOT_VALID
        assert await admitted(control, STRANGER, "", **ALICE) == CLIENT_IDENTIFIER_NOT_VALID
        assert logged_in(control) == CLIENT_IDENTIFIER_NOT_VALID


async def test_a_will_needs_the_rights_of_a_publish(tmp_path: Path) -> None:
    rules = "allow * publish state/%c\nallow * subscribe answers/%c\n"
    async with doorkeeper_of(tmp_path, rules) as control:

        async def with_will(topic: str, **properties: Any) -> str | int | None:
            named = {RESPONSE_TOPIC: properties["answers_to"]} if properties else {}
            return await admitted(control, STRANGER, will=Will(topic, b"gone", properties=named), **ALICE)

        assert await with_will("state/c1") == "alice"
        assert await with_will("state/c1", answers_to="answers/c1") == "alice"
        assert await with_will("state/c2") == NOT_AUTHORIZED
        assert await with_will("$SYS/broker/uptime") == NOT_AUTHORIZED
        assert await with_will("state/c1", answers_to="locks/front") == NOT_AUTHORIZED


async def test_no_will_is_a_statement_of_a_route(tmp_path: Path) -> None:
    async with doorkeeper_of(tmp_path, "allow * publish #\n") as control:
        will = Will("holdfast/statement/gateway/central", b"forged", 1)
        assert await admitted(control, STRANGER, will=will, **ALICE) == NOT_AUTHORIZED


async def test_an_assigned_client_identifier_is_filled_in_like_any_other(tmp_path: Path) -> None:
    async with doorkeeper_of(tmp_path, "allow * publish state/%c\n") as control:
        permissions = await control.admit(Connect("", **ALICE), STRANGER, "hf-1234", "")
        assert permissions.may_publish("state/hf-1234")


async def test_a_reload_reads_both_files_and_names_the_clients_that_have_to_go(tmp_path: Path) -> None:
    async with doorkeeper_of(tmp_path, "allow * publish a\n") as control:
        permissions = await control.admit(Connect("c1", **ALICE), STRANGER, "c1", "")
        (tmp_path / "access").write_text("allow * publish b\n")
        save_account(tmp_path / "accounts", make_account("alice", b"brush", with_scram=False))
        assert control.reload() == {"alice"}
        assert permissions.may_publish("b")
        assert await admitted(control, STRANGER, **ALICE) == BAD_USER_NAME_OR_PASSWORD
        (tmp_path / "access").write_text("nonsense\n")
        with pytest.raises(ConfigError, match="access:1: expected"):
            control.reload()
        assert permissions.may_publish("b")
