"""A client's part of SCRAM-SHA-256 (RFC 5802, RFC 7677)."""

import base64
import hashlib
import hmac
import secrets
from functools import lru_cache

METHOD = "SCRAM-SHA-256"
ITERATIONS_MAX = 1_000_000


class Scram:
    """One exchange: `first`, then `final` of the server's first message, then `proves` of its last message."""

    def __init__(self, user: str, password: bytes) -> None:
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={secrets.token_urlsafe(18)}"
        self._password = password
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The proof. Raises ValueError if the data is not a server's first message."""
        nonce, salt, iterations = (part.partition("=")[2] for part in server_first.decode().split(","))
        if not 0 < int(iterations) <= ITERATIONS_MAX:
            raise ValueError(f"{iterations} iterations")
        salted = _salted(self._password, base64.b64decode(salt), int(iterations))
        without_proof = f"c=biws,r={nonce}"
        said = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), said, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), said, "sha256")
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def proves(self, server_final: bytes) -> bool:
        """Whether the server's last message proves that it knows the account."""
        return server_final == b"v=" + base64.b64encode(self._signature)


@lru_cache(8)
def _salted(password: bytes, salt: bytes, iterations: int) -> bytes:
    """Returns the salted password, which a client may keep [RFC 5802, section 5.1].

    It takes some tenths of a second, and the checks that run at once share one event loop.
    """
    return hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
