"""The device's SCRAM against the gateway's, step by step."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from device.mqtt.scram import Derivation, Scram, hmac
from flash_store.log import Log
from gateway.auth.scram import ScramExchange, ScramKeys, make_keys
from tools.lab.sim.nor import NorFlash
from wire.errors import RemoteProtocolError

PASSWORD = "correct horse, battery=staple"
USER = "shed=2,left"


def make_log() -> Any:
    flash = NorFlash(4096, 8, 16, 0)
    Log.format(flash, 1)
    return Log(flash)


class Login:
    """A device's login at a gateway that has these keys of the user."""

    def __init__(self, log: Any, keys: ScramKeys, password: str = PASSWORD) -> None:
        self.lines: list[str] = []
        self.scram = Scram(USER, password, log, "scram0", self.lines.append)
        self.keys = keys

    def attempt(self) -> bytes:
        """Up to the proof of the gateway, which it returns."""
        exchange = ScramExchange(lambda user: self.keys if user == USER else None, b"secret")
        first = self.scram.respond(None)
        assert first is not None
        final = self.scram.respond(exchange.begin(first))
        assert final is not None
        return exchange.finish(final)

    def derive(self) -> int:
        """The steps that it took."""
        steps = 0
        while self.scram.is_deriving:
            self.scram.derive()
            steps += 1
        return steps

    def make_keys(self) -> None:
        with refused("make the keys"):
            self.attempt()
        self.derive()


@contextmanager
def refused(text: str) -> Iterator[None]:
    with pytest.raises(RemoteProtocolError, match=text):
        yield


@pytest.mark.parametrize("password", [b"pencil", b"x" * 64, b"y" * 65, b""])
def test_keys_are_those_of_pbkdf2(password: bytes) -> None:
    derivation = Derivation(password, b"salt", 4096)
    while not derivation.step(1000):
        pass
    assert derivation.result.to_bytes(32, "big") == hashlib.pbkdf2_hmac("sha256", password, b"salt", 4096)


def test_hmac_is_that_of_rfc_4231() -> None:
    expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    assert hmac(b"Jefe", b"what do ya want for nothing?").hex() == expected


def test_both_ends_prove_the_password_once_the_keys_are_derived() -> None:
    log = make_log()
    login = Login(log, make_keys(PASSWORD.encode(), 4096))
    with refused("4096 hashes make the keys"):
        login.attempt()
    assert 30 < login.derive() < 100, "in steps between which the device goes on"
    proof = login.attempt()
    assert not login.scram.is_proven
    login.scram.respond(proof)
    assert login.scram.is_proven


def test_keys_are_kept_over_a_restart_until_something_changes() -> None:
    log = make_log()
    keys = make_keys(PASSWORD.encode(), 4096)
    login = Login(log, keys)
    login.make_keys()
    login.scram.respond(login.attempt())
    Login(log, keys).attempt()
    for changed in (Login(log, make_keys(PASSWORD.encode(), 4096)), Login(log, keys, "another")):
        with refused("make the keys"):
            changed.attempt()


def test_keys_are_kept_once_a_login_has_proved_them() -> None:
    log = make_log()
    keys = make_keys(PASSWORD.encode(), 4096)
    for _ in range(2):
        login = Login(log, keys)
        with refused("make the keys"):
            login.attempt()
        login.derive()


def test_salt_that_has_changed_when_the_keys_are_derived_ends_that_login_and_not_the_next() -> None:
    log = make_log()
    with refused("make the keys"):
        (login := Login(log, make_keys(PASSWORD.encode(), 4096))).attempt()
    login.derive()
    login.keys = make_keys(PASSWORD.encode(), 4096)
    with refused("another salt or count"):
        login.attempt()
    assert not login.scram.is_deriving, "the other brokers have their turn"
    login.make_keys()
    login.scram.respond(login.attempt())
    assert login.scram.is_proven


def test_keys_that_the_store_has_no_room_for_last_until_the_next_start() -> None:
    log = make_log()
    log.settings.set("another", bytes(1900))  # of 2 KiB that all settings have
    login = Login(log, make_keys(PASSWORD.encode(), 4096))
    login.make_keys()
    login.scram.respond(login.attempt())
    assert login.scram.is_proven
    assert "until the next start alone" in login.lines[-1]


def test_broker_that_does_not_know_the_password_is_refused() -> None:
    log = make_log()
    login = Login(log, make_keys(PASSWORD.encode(), 4096))
    login.make_keys()
    proof = login.attempt()
    with refused("does not prove"):
        login.scram.respond(proof[:-2] + b"x=")
    assert not login.scram.is_proven


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (b"", "none of SCRAM"),
        (b"r=other,s=c2FsdA==,i=4096", "none of SCRAM"),
        (b"r=NONCE1,s=c2FsdA==,i=many", "none of SCRAM"),
        (b"r=NONCE1,s=,i=4096", "none of SCRAM"),
        (b"r=NONCE,s=c2FsdA==,i=4096", "none of SCRAM"),
        (b"r=NONCE1,s=c2FsdA==,x=4096", "none of SCRAM"),
        (b"r=NONCE1,x=c2FsdA==,i=4096", "none of SCRAM"),
        (b"r=NONCE1,i=4096,s=c2FsdA==", "none of SCRAM"),
        (b"r=NONCE1,s=c2FsdA==,i=4095", "4095 iterations, expected 4096 to"),
        (b"r=NONCE1,s=c2FsdA==,i=99999999", "99999999 iterations, expected 4096 to"),
        (b"e=other-error", "none of SCRAM"),
    ],
)
def test_what_is_no_challenge_is_refused(told: bytes, text: str) -> None:
    scram = Scram(USER, PASSWORD, make_log(), "scram0", print)
    first = scram.respond(None)
    assert first is not None
    with refused(text):
        scram.respond(told.replace(b"NONCE", first.rsplit(b"r=")[1]))
