"""NATS accounts, and the credentials file of a user in one of them.

Source: docs.nats.io, "JWTs": a claim is signed by the key of what is above it (operator, account, user).
"""

import base64
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import nkeys

_FILE = """-----BEGIN NATS USER JWT-----
{jwt}
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------
"""


_NO_LIMIT = {
    **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1),
    "wildcards": True,
}
_JETSTREAM = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)


class Account:
    """An account of a new operator, beside the operator's system account."""

    def __init__(self) -> None:
        self._operator, self._system = _new_key(nkeys.PREFIX_BYTE_OPERATOR), _new_key(nkeys.PREFIX_BYTE_ACCOUNT)
        self._key = _new_key(nkeys.PREFIX_BYTE_ACCOUNT)

    @property
    def lines(self) -> str:
        """Lines of a server's configuration: it takes the account's users alone."""
        operator = _signed("operator", self._operator, _public(self._operator), {"type": "operator"})
        system, account = _public(self._system), _public(self._key)
        limits = {system: _NO_LIMIT, account: {**_NO_LIMIT, **_JETSTREAM}}
        preloaded = "\n".join(
            f"  {key}: {_signed('account', self._operator, key, {'type': 'account', 'limits': limits[key]})}"
            for key in limits
        )
        head = f"operator: {operator}\nsystem_account: {system}\nresolver: MEMORY\n"
        return f"{head}resolver_preload: {{\n{preloaded}\n}}"

    def add_user(self, path: Path) -> None:
        """Writes the credentials file of a new user."""
        user = _new_key(nkeys.PREFIX_BYTE_USER)
        jwt = _signed("user", self._key, _public(user), {"type": "user", "subs": -1, "data": -1, "payload": -1})
        path.write_text(_FILE.format(jwt=jwt, seed=user.seed.decode()))
        path.chmod(0o600)


def _new_key(kind: int) -> Any:
    return nkeys.from_seed(nkeys.encode_seed(os.urandom(32), kind))


def _public(key: Any) -> str:
    return str(key.public_key.decode())


def _signed(name: str, issuer: Any, subject: str, claims: dict[str, Any]) -> str:
    body = {"iat": int(time.time()), "iss": _public(issuer), "name": name, "sub": subject}
    body["nats"] = {**claims, "version": 2}
    body["jti"] = base64.b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).decode().rstrip("=")
    text = f"{_encode({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_encode(body)}"
    return f"{text}.{_base64(issuer.sign(text.encode()))}"


def _encode(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
