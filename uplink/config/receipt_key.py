"""The key of the tables: a route that has it takes only receipts that were signed with its other half."""

from importlib.util import find_spec

from wire.receipt import signed_bytes, split_signature

KEY_BYTES = 32  # of an Ed25519 public key [RFC 8032, section 5.1.5]
NO_LIBRARY = "a key for receipts needs PyNaCl, which is not installed [the extra receipts]"


def problem_with_key(text: str) -> str:
    """Returns why a text is no public key, or none can be used; "" if it is one."""
    try:
        is_key = len(bytes.fromhex(text)) == KEY_BYTES and len(text) == 2 * KEY_BYTES
    except ValueError:
        is_key = False
    if not is_key:
        return f"{text[:80]!r}, expected {2 * KEY_BYTES} hexadecimal digits, as `holdfast cloud receipts` prints them"
    return "" if find_spec("nacl") else NO_LIBRARY


class ReceiptKey:
    """A public key, in hexadecimal digits."""

    def __init__(self, text: str) -> None:
        from nacl.signing import VerifyKey  # few gateways need it, and it takes memory

        self._verify = VerifyKey(bytes.fromhex(text))

    def problem_with(self, topic: str, payload: bytes) -> str:
        """Returns why a receipt does not count, "" if it was signed with this key. Raises ValueError: it is none."""
        from nacl.exceptions import BadSignatureError

        part, signature = split_signature(payload)
        if not signature:
            return "it is not signed"
        try:
            self._verify.verify(signed_bytes(topic, part), signature)
        except BadSignatureError:
            return "its signature is not of this key"
        return ""
