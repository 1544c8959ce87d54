"""What an honest client answers in SCRAM-SHA-256."""

import base64
import hashlib
import hmac


def _proof(password: bytes, salt: bytes, iterations: int, said: bytes) -> str:
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), said, "sha256")
    return base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()


def final(
    server_first: bytes, password: bytes = b"pencil", *, channel: str = "biws", bare: str = "n=alice,r=abc"
) -> bytes:
    """A client's last message, as an honest client makes it."""
    nonce, salt, iterations = (part.partition("=")[2] for part in server_first.decode().split(","))
    without_proof = f"c={channel},r={nonce}"
    said = ",".join([bare, server_first.decode(), without_proof]).encode()
    return f"{without_proof},p={_proof(password, base64.b64decode(salt), int(iterations), said)}".encode()
