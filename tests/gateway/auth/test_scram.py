"""SCRAM-SHA-256: a client that knows the password proves it; all others learn and prove nothing."""

import base64
import hashlib
import hmac
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.scram import ScramError, ScramExchange, ScramKeys, decode_keys, make_keys
from tests.gateway.auth.scram_client import final

SECRET = b"of this process"
ITERATIONS = 4096
KEYS = make_keys(b"pencil", ITERATIONS)


def exchange(keys: ScramKeys | None = KEYS) -> ScramExchange:
    return ScramExchange(lambda user: keys if user == "alice" else None, SECRET)


def test_the_example_of_rfc_7677_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    keys = ScramKeys(4096, salt, stored_key, hmac.digest(salted, b"Server Key", "sha256"))
    monkeypatch.setattr(secrets, "token_urlsafe", lambda _: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    server = ScramExchange(lambda user: keys, SECRET)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    first = f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    assert server.begin(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == first
    last = f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    assert server.finish(last) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


def test_a_client_that_knows_the_password_is_admitted() -> None:
    server = exchange()
    assert server.finish(final(server.begin(b"n,,n=alice,r=abc"))).startswith(b"v=")
    assert server.user == "alice"


def test_keys_survive_the_accounts_file() -> None:
    assert decode_keys(str(KEYS)) == KEYS


@pytest.mark.parametrize("password", [b"", b"pencil ", b"Pencil", b"pencils"])
def test_another_password_is_not(password: bytes) -> None:
    server = exchange()
    with pytest.raises(ScramError, match="its proof is wrong"):
        server.finish(final(server.begin(b"n,,n=alice,r=abc"), password))


def test_a_user_without_keys_looks_like_one_with_a_wrong_password() -> None:
    answers = [exchange().begin(b"n,,n=unknown,r=abc").split(b",") for _ in range(2)]
    assert answers[0][1:] == answers[1][1:]
    assert answers[0][0] != answers[1][0]
    assert exchange().begin(b"n,,n=noone,r=abc").split(b",")[1] != answers[0][1]
    server = exchange()
    nonce = server.begin(b"n,,n=unknown,r=abc").split(b",")[0]
    with pytest.raises(ScramError, match="its proof is wrong"):
        server.finish(b"c=biws," + nonce + b",p=" + base64.b64encode(bytes(32)))


def test_the_stored_keys_alone_make_no_proof() -> None:
    server = exchange()
    first = server.begin(b"n,,n=alice,r=abc")
    nonce = first.decode().split(",")[0]
    said = ",".join(["n=alice,r=abc", first.decode(), f"c=biws,{nonce}"]).encode()
    signature = hmac.digest(KEYS.stored_key, said, "sha256")
    stolen = bytes(a ^ b for a, b in zip(KEYS.stored_key, signature, strict=True))
    with pytest.raises(ScramError, match="its proof is wrong"):
        server.finish(f"c=biws,{nonce},p={base64.b64encode(stolen).decode()}".encode())


def test_what_another_exchange_was_told_is_worth_nothing_in_this_one() -> None:
    recorded = exchange()
    last = final(recorded.begin(b"n,,n=alice,r=abc"))
    replayed = exchange()
    replayed.begin(b"n,,n=alice,r=abc")
    with pytest.raises(ScramError, match="another message than ours"):
        replayed.finish(last)


def test_a_proof_is_taken_once() -> None:
    server = exchange()
    last = final(server.begin(b"n,,n=alice,r=abc"))
    server.finish(last)
    with pytest.raises(ScramError, match="nothing was begun"):
        server.finish(last)


def test_a_client_that_is_told_there_is_no_channel_binding_is_noticed() -> None:
    """A man in the middle turned its "p=" or "y" into "n"."""
    server = exchange()
    with pytest.raises(ScramError, match="another message than ours"):
        server.finish(final(server.begin(b"n,,n=alice,r=abc"), channel=base64.b64encode(b"y,,").decode()))


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"p=tls-unique,,n=alice,r=abc", "wants its channel bound"),
        (b"n,a=root,n=alice,r=abc", "act as another user"),
        (b"n,,n=al=ice,r=abc", "a name is not SCRAM's"),
        (b"n,,n=,r=abc", "not SCRAM's"),
        (b"n,,n=alice,r=", "not SCRAM's"),
        (b"n,,m=x,n=alice,r=abc", "not SCRAM's"),
        (b"n,,n=alice,r=abc,m=x", "not SCRAM's"),
        (b"n,,n=alice,r=a\x00c", "not SCRAM's"),
        (b"n,,n=\xff,r=abc", "not SCRAM's"),
        (b"", "not SCRAM's"),
        (b"n,,n=" + b"a" * 5000 + b",r=abc", "too long"),
    ],
)
def test_a_first_message_that_is_not_as_it_should_be_is_refused(first: bytes, why: str) -> None:
    with pytest.raises(ScramError, match=why):
        exchange().begin(first)


def test_a_name_with_a_comma_and_an_authorization_as_oneself_are_understood() -> None:
    server = ScramExchange(lambda user: KEYS if user == "a,b=c" else None, SECRET)
    bare = "n=a=2Cb=3Dc,r=abc"
    channel = base64.b64encode(b"n,a=a=2Cb=3Dc,").decode()
    server.finish(final(server.begin(b"n,a=a=2Cb=3Dc," + bare.encode()), channel=channel, bare=bare))
    assert server.user == "a,b=c"


@given(first=st.binary(max_size=60) | st.text("n,=abcr", max_size=30).map(str.encode), last=st.binary(max_size=60))
def test_whatever_comes_only_the_documented_error_goes_out(first: bytes, last: bytes) -> None:
    server = exchange()
    for step, message in (
        (server.begin, first),
        (server.finish, last),
        (server.begin, b"n,,n=alice,r=a"),
        (server.finish, last),
    ):
        try:
            step(message)
        except ScramError:
            continue
    with pytest.raises(ScramError):
        server.finish(last)
