"""Requests to a unit, and what its answers say [application, section 6]."""

from dataclasses import dataclass
from typing import Literal

from gateway.connectors.reading import Unreadable

Table = Literal["coil", "discrete", "holding", "input"]

READ: dict[Table, int] = {"coil": 1, "discrete": 2, "holding": 3, "input": 4}
WRITE = {("coil", True): 5, ("holding", True): 6, ("coil", False): 15, ("holding", False): 16}
"""The functions that set one coil or register, and the functions that set several."""
COIL_ON = 0xFF00
IS_EXCEPTION = 0x80
REGISTERS_MOST, BITS_MOST = 125, 2000
ADDRESS_MAX = 0xFFFF
EXCEPTIONS = {
    1: "illegal function",
    2: "illegal data address",
    3: "illegal data value",
    4: "server device failure",
    5: "acknowledge: it takes long",
    6: "server device busy",
    7: "negative acknowledge",
    8: "memory parity error",
    10: "gateway path unavailable",
    11: "gateway target device failed to respond",
}
SURELY_NOT_DONE = (1, 2, 3, 6, 7, 10)
"""Exceptions by which a unit says that it has not begun to do what it was asked [application, section 7]."""
BEHIND_A_GATEWAY = (10, 11)
"""Exceptions by which a gateway to other units says that it does not reach this one."""


class UnitException(Unreadable):
    """A unit has answered with an exception. ``code`` is its number."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exception {code}: {EXCEPTIONS.get(code, 'not in the specification')}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Read:
    """A request for consecutive coils or registers."""

    table: Table
    address: int
    count: int

    @property
    def is_bits(self) -> bool:
        """Whether it reads bits, not registers."""
        return self.table in ("coil", "discrete")

    @property
    def function(self) -> int:
        return READ[self.table]

    def encode(self) -> bytes:
        """Returns the PDU: function code and data."""
        return bytes((self.function,)) + self.address.to_bytes(2, "big") + self.count.to_bytes(2, "big")

    @property
    def answer_head(self) -> bytes:
        """What each answer begins with that is no exception: function code and the number of bytes."""
        return bytes((self.function, self._answer_bytes))

    @property
    def answer_size(self) -> int:
        """The bytes of the answer's PDU."""
        return 2 + self._answer_bytes

    @property
    def _answer_bytes(self) -> int:
        return -(-self.count // 8) if self.is_bits else 2 * self.count

    def values_of(self, answer: bytes) -> list[int]:
        """Returns the registers, or the bits as 0 and 1, of an answer's PDU.

        Raises:
            UnitException: the unit has answered with one.
            Unreadable: it is no answer to this request.
        """
        check_answer(self, answer)
        data = answer[2:]
        if self.is_bits:
            return [data[number // 8] >> number % 8 & 1 for number in range(self.count)]
        return [int.from_bytes(data[start : start + 2], "big") for start in range(0, len(data), 2)]


@dataclass(frozen=True, slots=True)
class Write:
    """A request that sets consecutive coils or holding registers [application, sections 6.5, 6.6, 6.11 and 6.12].

    ``is_single``: it uses the function for one coil or register, and has one value.
    """

    table: Literal["coil", "holding"]
    address: int
    values: tuple[int, ...]
    is_single: bool = False

    @property
    def function(self) -> int:
        return WRITE[self.table, self.is_single]

    def encode(self) -> bytes:
        """Returns the PDU."""
        if self.is_single:
            return self.answer_head
        if self.table == "coil":
            packed = sum(bool(value) << number for number, value in enumerate(self.values))
            data = packed.to_bytes(-(-len(self.values) // 8), "little")
        else:
            data = b"".join(value.to_bytes(2, "big") for value in self.values)
        return self.answer_head + bytes((len(data),)) + data

    @property
    def answer_head(self) -> bytes:
        """The whole answer: it repeats function, address and count, or the value if it is a single one."""
        last = len(self.values)
        if self.is_single:
            last = self.values[0] if self.table == "holding" else COIL_ON * bool(self.values[0])
        return bytes((self.function,)) + self.address.to_bytes(2, "big") + last.to_bytes(2, "big")

    @property
    def answer_size(self) -> int:
        return 5


Request = Read | Write


def check_answer(request: Request, answer: bytes) -> None:
    """Raises UnitException for an exception, Unreadable for what is no answer to a request."""
    if len(answer) == 2 and answer[0] == request.function | IS_EXCEPTION:
        raise UnitException(answer[1])
    if len(answer) != request.answer_size or not answer.startswith(request.answer_head):
        raise Unreadable("an answer to another request")
