"""The client's part of SCRAM, with which checks log in."""

import hashlib

import pytest

from tools.lab.testing.scram import Scram


def test_exchanges_of_one_account_salt_its_password_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that run at once share an event loop, and a broker drops a client that takes too long to log in."""
    salted: list[bytes] = []
    original = hashlib.pbkdf2_hmac

    def count(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        salted.append(password)
        return original(name, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", count)
    proofs = set()
    for password in (b"first", b"first", b"second"):
        scram = Scram("user", password)
        scram.first()
        proofs.add(scram.final(b"r=nonce,s=c2FsdA==,i=4097"))
    assert salted == [b"first", b"second"]
    assert len(proofs) == 3
