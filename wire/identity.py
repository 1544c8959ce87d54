"""A message's identity and its provenance, as MQTT 5 user properties.

`hf-id` = "{epoch:08x}/{seq}/{origin}": the origin is the device that made the message, the epoch identifies its store
(a formatted store has a new epoch), and seq counts the messages of a store without holes.
`hf-received` = "{unix_ms}/{gateway_name}": when and where the first gateway accepted the message.
In both the name comes last, so it may contain any character; it has at most NAME_BYTES_MAX bytes.

`hf-identity`, in a CONNECT, is RECEIVE or KEEP, or is there twice with both: see these names.
"""

IDENTITY_PROPERTY = "hf-id"
RECEIVED_PROPERTY = "hf-received"
WISH_PROPERTY = "hf-identity"
RECEIVE = "receive"  # the gateway sends identity and provenance with each message to this client
KEEP = (
    "keep"  # the gateway refuses a message whose identity this client may not use; without KEEP it gives it a new one
)
EPOCH_MAX = 0xFFFF_FFFF
NAME_BYTES_MAX = 256  # of an origin, a gateway's name or a client identifier: each row of a store may have all three
SEQ_MAX = 0x7FFF_FFFF_FFFF_FFFF  # the largest integer that fits into every store and table downstream

USER_PROPERTY = 0x26  # repeated from wire.properties, so that this module can be imported alone


def encode_identity(origin: str, epoch: int, seq: int) -> str:
    """Returns the value of `hf-id`. Raises ValueError if a part is out of range."""
    _check(origin, epoch, seq)
    return f"{epoch:08x}/{seq}/{origin}"


def decode_identity(text: str) -> tuple[str, int, int]:
    """Returns (origin, epoch, seq). Raises ValueError naming the fault; each identity has exactly one spelling."""
    epoch_text, _, rest = text.partition("/")
    seq_text, _, origin = rest.partition("/")
    epoch = _integer("epoch", epoch_text, 16)
    seq = _integer("seq", seq_text, 10)
    _check(origin, epoch, seq)
    if epoch_text != f"{epoch:08x}":
        raise ValueError(f"epoch {epoch_text!r} is not eight lower-case hexadecimal digits")
    if seq_text != str(seq):
        raise ValueError(f"seq {seq_text!r} is not a plain decimal number")
    check_name("origin", origin)
    return origin, epoch, seq


def encode_received(unix_ms: int, gateway_name: str) -> str:
    return f"{unix_ms}/{gateway_name}"


def decode_received(text: str) -> tuple[int, str]:
    """Returns (unix_ms, gateway name). Raises ValueError naming the fault."""
    time_text, _, gateway_name = text.partition("/")
    unix_ms = _integer("time", time_text, 10)
    if time_text != str(unix_ms) or not 0 <= unix_ms <= SEQ_MAX:
        raise ValueError(f"time {time_text!r} is not a plain decimal number")
    if not gateway_name:
        raise ValueError("the gateway's name is empty")
    check_name("the gateway's name", gateway_name)
    return unix_ms, gateway_name


def check_name(what: str, name: str) -> None:
    """Raises ValueError if an origin, a gateway's name or a client identifier is too long; `what` names it."""
    size = len(name.encode())
    if size > NAME_BYTES_MAX:
        raise ValueError(f"{what} has {size} bytes, expected {NAME_BYTES_MAX} at most")


def find_user_property(properties: dict, name: str) -> str | None:
    """Returns the value of the first user property `name` in a packet's properties, or None."""
    for key, value in properties.get(USER_PROPERTY, ()):
        if key == name:
            return value
    return None


def find_wishes(properties: dict) -> list:
    """Returns the values of `hf-identity` in a CONNECT's properties."""
    return [value for key, value in properties.get(USER_PROPERTY, ()) if key == WISH_PROPERTY]


def _check(origin: str, epoch: int, seq: int) -> None:
    if not origin:
        raise ValueError("origin is empty")
    if not 0 <= epoch <= EPOCH_MAX:
        raise ValueError(f"epoch {epoch} is not within 0 and {EPOCH_MAX}")
    if not 1 <= seq <= SEQ_MAX:
        raise ValueError(f"seq {seq} is not within 1 and {SEQ_MAX}")


def _integer(name: str, text: str, base: int) -> int:
    try:
        return int(text, base)
    except ValueError:
        raise ValueError(f"{name} {text[:32]!r} is not a number")
