"""The server of SCRAM-SHA-256 [RFC 5802, RFC 7677]: a client proves that it knows a password without sending it.

``ScramExchange`` does no I/O: it takes the client's two messages and returns the answers. There is no channel binding;
TLS protects the channel.
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
ITERATIONS = 600_000  # a client computes them once, an attacker with the accounts file for every guess
ITERATIONS_MIN = 4096  # [RFC 7677 section 4]
SALT_SIZE, KEY_SIZE = 16, 32  # bytes
NONCE_SIZE = 18  # bytes
MESSAGE_SIZE_MAX = 4096  # bytes, far more than a client needs

_CLIENT_FIRST = re.compile(r"([^,]*),(?:a=([^,]*))?,(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-ln-z]=[^,]*)*)")
_CLIENT_FINAL = re.compile(r"(c=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-ln-z]=[^,]*)*),p=([^,]+)")


class ScramError(Exception):
    """The exchange failed; the text says why. It is for the log alone."""


@dataclass(slots=True, frozen=True, repr=False)
class ScramKeys:
    """The server's keys of a password: they check a proof and cannot make one."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __str__(self) -> str:
        parts = (base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        return f"{PREFIX}{self.iterations}${'$'.join(parts)}"


def make_keys(password: bytes, iterations: int = ITERATIONS) -> ScramKeys:
    """Returns the keys of a password; blocks for some hundred milliseconds.

    Raises ValueError unless it is printable ASCII: clients encode other characters differently [RFC 4013].
    """
    if not password or any(not 0x20 <= byte <= 0x7E for byte in password):
        raise ValueError("a password for SCRAM must be printable ASCII")
    salt = os.urandom(SALT_SIZE)
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    stored_key = hashlib.sha256(_hmac(salted, b"Client Key")).digest()
    return ScramKeys(iterations, salt, stored_key, _hmac(salted, b"Server Key"))


def decode_keys(text: str) -> ScramKeys:
    """Decodes ``str(keys)``. Raises ValueError."""
    iterations, salt, stored_key, server_key = text.removeprefix(PREFIX).split("$")
    parts = [base64.b64decode(part, validate=True) for part in (salt, stored_key, server_key)]
    if not text.startswith(PREFIX) or int(iterations) < ITERATIONS_MIN or [len(part) for part in parts[1:]] != [32, 32]:
        raise ValueError("no keys of SCRAM-SHA-256")
    return ScramKeys(int(iterations), *parts)


class ScramExchange:
    """One authentication of one client. The client gets the same answer whatever this raises.

    Args:
        keys_of: returns the keys of a user, None without keys. Then the exchange goes on with keys that match no
            password, so that the client cannot tell the difference.
        secret: the salts of users without keys are derived from it, so that they are the same at each attempt.
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
        self._keys = found or self._invented_keys()
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

    def _invented_keys(self) -> ScramKeys:
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
