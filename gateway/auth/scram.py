"""SCRAM-SHA-256 [RFC 5802, RFC 7677], the server's part: a client proves that it knows a password without sending it.

It neither reads nor writes: ``ScramExchange`` takes the client's two messages and returns what to answer. A network
connection's channel is not bound into it; TLS is what keeps others out of the channel.
"""

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

METHOD = "SCRAM-SHA-256"
PREFIX = "$scram-sha-256$"
ITERATIONS = 600_000  # each client pays it once; the accounts file's thief for every guess
ITERATIONS_MIN = 4096  # [RFC 7677 section 4]
SALT_SIZE, KEY_SIZE = 16, 32  # bytes
NONCE_SIZE = 18  # bytes
MESSAGE_SIZE_MAX = 4096  # bytes; no honest message comes near it

_CLIENT_FIRST = re.compile(r"([^,]*),(?:a=([^,]*))?,(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-ln-z]=[^,]*)*)")
_CLIENT_FINAL = re.compile(r"(c=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-ln-z]=[^,]*)*),p=([^,]+)")


class ScramError(Exception):
    """The exchange failed; the text says why, for the log alone."""


@dataclass(slots=True, frozen=True, repr=False)
class ScramKeys:
    """What the server keeps of a password: enough to check a proof, not enough to make one."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __str__(self) -> str:
        parts = (base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        return f"{PREFIX}{self.iterations}${'$'.join(parts)}"


def make_keys(password: bytes, iterations: int = ITERATIONS) -> ScramKeys:
    """Returns the keys of a password; blocks for some hundred milliseconds.

    Raises ValueError unless it is printable ASCII: of anything else clients make different bytes [RFC 4013].
    """
    if not password or any(not 0x20 <= byte <= 0x7E for byte in password):
        raise ValueError("a password for SCRAM must be printable ASCII")
    salt = os.urandom(SALT_SIZE)
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    stored_key = hashlib.sha256(_hmac(salted, b"Client Key")).digest()
    return ScramKeys(iterations, salt, stored_key, _hmac(salted, b"Server Key"))


def decode_keys(text: str) -> ScramKeys:
    """The inverse of ``str(keys)``. Raises ValueError."""
    iterations, salt, stored_key, server_key = text.removeprefix(PREFIX).split("$")
    parts = [base64.b64decode(part, validate=True) for part in (salt, stored_key, server_key)]
    if not text.startswith(PREFIX) or int(iterations) < ITERATIONS_MIN or [len(part) for part in parts[1:]] != [32, 32]:
        raise ValueError("no keys of SCRAM-SHA-256")
    return ScramKeys(int(iterations), *parts)


class ScramExchange:
    """One authentication of one client. Whatever it raises, the client is told the same.

    Args:
        keys_of: returns the keys of a user, None for one that has none. Who asks cannot tell: the exchange goes on
            with keys that fit no password.
        secret: from which the salts of users without keys are made; stable, so that asking twice tells nothing.
    """

    def __init__(self, keys_of: Callable[[str], ScramKeys | None], secret: bytes) -> None:
        self.user = ""
        self._keys_of = keys_of
        self._secret = secret
        self._keys: ScramKeys | None = None
        self._known = False
        self._nonce = ""
        self._channel = b""
        self._said = b""

    def begin(self, client_first: bytes) -> bytes:
        """Takes the client's first message; returns ours. Raises ScramError."""
        message = _parse(_CLIENT_FIRST, client_first)
        header, authorized, bare, name, client_nonce = message.groups()
        if header not in ("n", "y"):
            raise ScramError("it wants its channel bound, which is not offered")
        self.user = _decode_name(name)
        if authorized and _decode_name(authorized) != self.user:
            raise ScramError("it wants to act as another user")
        found = self._keys_of(self.user)
        self._known = found is not None
        self._keys = found or self._keys_of_nobody()
        self._nonce = client_nonce + secrets.token_urlsafe(NONCE_SIZE)
        self._channel = message.string[: message.start(3)].encode()
        salt = base64.b64encode(self._keys.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._keys.iterations}".encode()
        self._said = bare.encode() + b"," + answer
        return answer

    def finish(self, client_final: bytes) -> bytes:
        """Takes the client's proof; returns ours, and ``user`` is proved. Raises ScramError."""
        keys, self._keys = self._keys, None
        if keys is None:
            raise ScramError("nothing was begun")
        without_proof, channel, nonce, proof = _parse(_CLIENT_FINAL, client_final).groups()
        said = self._said + b"," + without_proof.encode()
        client_key = _xor(_decode(proof), _hmac(keys.stored_key, said))
        proved = hmac.compare_digest(hashlib.sha256(client_key).digest(), keys.stored_key)
        if _decode(channel) != self._channel or nonce != self._nonce:
            raise ScramError("it answers another message than ours")
        if not proved or not self._known:
            raise ScramError("its proof is wrong")
        return b"v=" + base64.b64encode(_hmac(keys.server_key, said))

    def _keys_of_nobody(self) -> ScramKeys:
        salt = _hmac(self._secret, self.user.encode())[:SALT_SIZE]
        return ScramKeys(ITERATIONS, salt, os.urandom(KEY_SIZE), os.urandom(KEY_SIZE))


def _parse(pattern: re.Pattern[str], message: bytes) -> re.Match[str]:
    if len(message) > MESSAGE_SIZE_MAX:
        raise ScramError("a message is too long")
    try:
        found = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise ScramError("a message is not SCRAM's")
    return found


def _decode_name(name: str) -> str:
    if re.search("=(?!2C|3D)", name):
        raise ScramError("a name is not SCRAM's")
    return name.replace("=2C", ",").replace("=3D", "=")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ScramError("a message is not SCRAM's") from error


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _xor(left: bytes, right: bytes) -> bytes:
    if len(left) != len(right):
        raise ScramError("its proof has a wrong length")
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
