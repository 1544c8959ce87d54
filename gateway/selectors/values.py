"""Operations on the values of a selector, with SQL's third truth value: NULL, as None, when a value is not known.

A value is a number, a text, true, false or NULL. Where a text meets a number, or stands in arithmetic, it counts as the
number that it spells, and as NULL if it spells none: user properties are texts. Where it meets true or false, it has to
spell one of these.

Source: Jakarta Messaging 3.1, section 3.8.1, "Message selector syntax", and SQL-92 for NULL.
"""

import operator
import re
from collections.abc import Callable, Collection
from typing import Any

Value = float | str | bool | None  # an int is a float here
Truth = bool | None

_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?", re.ASCII)
NUMBER_MAX = 128  # characters of a text that may spell a number, with blanks around it
LIKE_MAX = 512
"""The most characters of a text that LIKE compares: it takes up to 1 ns for each of them and of the pattern."""
_INTEGER_BITS = 63
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def truth(value: Value) -> Truth:
    """Returns a value as the result of a condition; NULL for a number and for other texts than true and false."""
    if value is True or value is False:
        return value
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower()) if len(value) <= len("false") else None
    return None


def number(value: Value) -> float | None:
    """Returns a value as a number; NULL for true, false and a text that spells none."""
    if isinstance(value, str):
        return float(value) if len(value) <= NUMBER_MAX and _NUMBER.fullmatch(value.strip()) else None
    return None if isinstance(value, bool) else value


def equal(left: Value, right: Value) -> Truth:
    """Whether two values are equal; NULL if they are of kinds that do not meet."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    kind = truth if isinstance(left, bool) or isinstance(right, bool) else number
    first, second = kind(left), kind(right)
    return None if first is None or second is None else first == second


def ordered(sign: str) -> Callable[[Value, Value], Truth]:
    """Returns the comparison of two values as numbers by ``<``, ``<=``, ``>`` or ``>=``; NULL if one is none."""
    holds = ORDERS[sign]

    def compare(left: Value, right: Value) -> Truth:
        first, second = number(left), number(right)
        return None if first is None or second is None else holds(first, second)

    return compare


_AT_LEAST, _AT_MOST = ordered(">="), ordered("<=")


def is_between(value: Value, low: Value, high: Value) -> Truth:
    """BETWEEN, of numbers: false if the value is on the wrong side of one limit, else NULL if one of the three is."""
    tests = _AT_LEAST(value, low), _AT_MOST(value, high)
    return False if False in tests else None if None in tests else True


def calculated(sign: str) -> Callable[[Value, Value], Value]:
    """Returns ``+``, ``-``, ``*`` or ``/`` of two values as numbers. NULL: one is none, or the result is none."""
    operation: Callable[[Any, Any], Any] = {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "/": operator.truediv,
    }[sign]

    def calculate(left: Value, right: Value) -> Value:
        first, second = number(left), number(right)
        if first is None or second is None:
            return None
        try:
            result = operation(first, second)
            if isinstance(result, int) and result.bit_length() > _INTEGER_BITS:
                result = float(result)
        except (ZeroDivisionError, OverflowError):
            return None
        return result if abs(result) < float("inf") else None  # neither NaN nor infinite

    return calculate


def opposite(condition: Truth) -> Truth:
    """NOT: NULL stays NULL."""
    return None if condition is None else not condition


def one_of(members: Collection[Value]) -> Callable[[Value], Truth]:
    """Returns IN: NULL if no member is equal and a comparison with one of them is NULL."""
    texts = frozenset(members) if all(isinstance(member, str) for member in members) else None

    def is_one(value: Value) -> Truth:
        if texts is not None and isinstance(value, str):
            return value in texts
        found = [equal(value, member) for member in members]
        return True if True in found else None if None in found else False

    return is_one


def like(pattern: str, escape: str | None) -> Callable[[Value], Truth]:
    """Returns LIKE with a pattern: ``%`` stands for any characters, ``_`` for one; behind ``escape`` they stand for
    themselves. NULL for a value that is no text, and for a text of more than LIKE_MAX characters.

    Raises ValueError: the escape character is not one character, or stands before another one, or at the end.
    """
    if escape is not None and len(escape) != 1:
        raise ValueError(f"expected one character behind ESCAPE, not {escape!r}")
    pieces: list[str] = [""]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in ("%", "_", escape):
                raise ValueError(f"{escape} in {pattern!r} stands before neither %, _ nor itself")
            pieces[-1] += re.escape(following)
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if character == "_" else re.escape(character)
    first, *rest = pieces
    # An atomic group takes the first place where a piece fits, and no other: what is behind loses nothing by it.
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1] if piece)
    last = f".*{rest[-1]}" if rest else ""
    fits = re.compile(f"(?>{first}){middle}{last}", re.DOTALL).fullmatch

    def is_like(value: Value) -> Truth:
        return fits(value) is not None if isinstance(value, str) and len(value) <= LIKE_MAX else None

    return is_like
