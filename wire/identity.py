"""A message's identity and its provenance, as MQTT 5 user properties.

`hf-id` = "{epoch:08x}/{seq}/{origin}": who made the message, in which life of its store, its dense number.
`hf-received` = "{unix_ms}/{gateway_name}": when and where the first gateway accepted it.
The name comes last in both, so it may hold any character; one longer than NAME_BYTES_MAX is no name.

`hf-identity`, in a CONNECT, says what the client wants of them: RECEIVE, KEEP, or both as two properties.
"""

IDENTITY_PROPERTY = "hf-id"
RECEIVED_PROPERTY = "hf-received"
WISH_PROPERTY = "hf-identity"
RECEIVE = "receive"  # identity and provenance come with each delivery
KEEP = "keep"  # a message whose identity the client may not bring is refused; otherwise it gets a new one
EPOCH_MAX = 0xFFFF_FFFF
NAME_BYTES_MAX = 256  # of an origin, a gateway's name or a client identifier: each row of a store may have all three
SEQ_MAX = 0x7FFF_FFFF_FFFF_FFFF  # the widest integer that every table and store on the way can hold

USER_PROPERTY = 0x26  # wire.properties names it too; this module stays importable alone


def encode_identity(origin: str, epoch: int, seq: int) -> str:
    """Raises ValueError when a part is out of its range."""
    _check(origin, epoch, seq)
    return f"{epoch:08x}/{seq}/{origin}"


def decode_identity(text: str) -> tuple[str, int, int]:
    """(origin, epoch, seq). Raises ValueError naming what is wrong; one identity has one spelling only."""
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
    """(unix_ms, gateway name). Raises ValueError naming what is wrong."""
    time_text, _, gateway_name = text.partition("/")
    unix_ms = _integer("time", time_text, 10)
    if time_text != str(unix_ms) or not 0 <= unix_ms <= SEQ_MAX:
        raise ValueError(f"time {time_text!r} is not a plain decimal number")
    if not gateway_name:
        raise ValueError("the gateway's name is empty")
    check_name("the gateway's name", gateway_name)
    return unix_ms, gateway_name


def check_name(what: str, name: str) -> None:
    """Raises ValueError where an origin, a gateway's name or a client identifier is too long."""
    size = len(name.encode())
    if size > NAME_BYTES_MAX:
        raise ValueError(f"{what} has {size} bytes, expected {NAME_BYTES_MAX} at most")


def find_user_property(properties: dict, name: str) -> str | None:
    """The value of the first user property `name` in a packet's properties."""
    for key, value in properties.get(USER_PROPERTY, ()):
        if key == name:
            return value
    return None


def find_wishes(properties: dict) -> list:
    """What a CONNECT's properties say of identities."""
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
