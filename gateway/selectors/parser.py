"""The grammar of selectors. A selector becomes one function, which is asked for each message.

::

    condition  = term *(OR term)
    term       = factor *(AND factor)
    factor     = [NOT] test
    test       = sum [comparison sum
                     / [NOT] BETWEEN sum AND sum
                     / [NOT] IN "(" literal *("," literal) ")"
                     / [NOT] LIKE text [ESCAPE text]
                     / IS [NOT] NULL]
    sum        = product *(("+" / "-") product)
    product    = sign *(("*" / "/") sign)
    sign       = ["+" / "-"] operand
    operand    = literal / field / "(" condition ")"
    literal    = [["+" / "-"] number] / text in single quotes / TRUE / FALSE
    field      = name / ("topic" / "json" / "reading" / "mqtt" / "id") *("." name)
    comparison = "=" / "<>" / "<" / "<=" / ">" / ">="

Keywords are read in any case. Other names, and all names in double quotes, name user properties.

Source: Jakarta Messaging 3.1, section 3.8.1. Holdfast adds fields with dots, and literals of all kinds behind IN.
"""

from collections.abc import Callable
from typing import NamedTuple

from gateway.selectors import values
from gateway.selectors.fields import NAMESPACES, Fields, Find, field, user_property
from gateway.selectors.lexer import BadSelector, Word, Words
from gateway.selectors.values import ORDERS, Truth, Value

DEPTH_MAX = 32  # of parentheses, signs and NOTs within each other

Test = Callable[[Fields], Truth]


class Expression(NamedTuple):
    """A part of a selector. ``kind`` is "number", "text" or "truth" for a part that has no other values, else "field".

    ``literal`` is the value of a literal, NULL for other parts.
    """

    find: Find
    kind: str = "field"
    literal: Value = None


class Parser:
    """Reads one selector. Raises BadSelector.

    Args:
        text: the selector.

    ``needs_readings`` says whether it names one. ``size`` counts its words and the characters of its patterns.
    """

    def __init__(self, text: str) -> None:
        self._words = Words(text)
        self._depth = 0
        self.needs_readings = False
        self.size = self._words.count

    def parse(self) -> Test:
        """Returns what finds out whether a message fulfils the selector."""
        condition = self._condition()
        if self._words.current.kind != "end":
            self._words.fail("AND, OR or the end")
        return self._truth_of(condition)

    def _within(self, part: Callable[[], Expression]) -> Expression:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._words.fail(f"at most {DEPTH_MAX} parentheses, signs and NOTs within each other")
        found = part()
        self._depth -= 1
        return found

    # Conditions

    def _condition(self) -> Expression:
        return self._joined("OR", self._term, decisive=True)

    def _term(self) -> Expression:
        return self._joined("AND", self._factor, decisive=False)

    def _joined(self, keyword: str, part: Callable[[], Expression], *, decisive: bool) -> Expression:
        first = part()
        if not self._words.take(keyword):
            return first
        tests = [self._truth_of(first), self._truth_of(part())]
        while self._words.take(keyword):
            tests.append(self._truth_of(part()))
        return Expression(_joint(tests, decisive), "truth")

    def _truth_of(self, expression: Expression) -> Test:
        """Returns an expression as a condition: a field counts as one if it is true or false."""
        if expression.kind in ("number", "text"):
            self._words.fail("a comparison")
        find = expression.find
        return find if expression.kind == "truth" else lambda fields: values.truth(find(fields))  # type: ignore[return-value]

    def _factor(self) -> Expression:
        if not self._words.take("NOT"):
            return self._test()
        return Expression(_opposite(self._truth_of(self._within(self._factor))), "truth")

    def _test(self) -> Expression:
        left = self._sum()
        if self._words.current.value in ("=", "<>", *ORDERS):
            return Expression(self._comparison(left, self._words.next()), "truth")
        if self._words.take("IS"):
            is_null = self._words.take("NOT") is None
            self._words.require("NULL")
            find = left.find
            return Expression(lambda fields: (find(fields) is None) is is_null, "truth")
        is_not = self._words.take("NOT") is not None
        if self._words.take("BETWEEN"):
            found = self._between(left.find)
        elif self._words.take("IN"):
            found = self._membership(left.find)
        elif self._words.take("LIKE"):
            found = self._likeness(left.find)
        elif is_not:
            self._words.fail("BETWEEN, IN or LIKE")
        else:
            return left
        return Expression(_opposite(found) if is_not else found, "truth")

    def _comparison(self, left: Expression, sign: Word) -> Test:
        right = self._sum()
        if sign.value not in ORDERS:
            equal = _equal(left, right)
            return _opposite(equal) if sign.value == "<>" else equal
        for side in (left, right):
            if side.kind in ("text", "truth"):
                raise BadSelector(f"character {sign.place}: {sign} compares numbers, not a {side.kind}")
        compare, first, second = values.ordered(str(sign)), left.find, right.find
        return lambda fields: compare(first(fields), second(fields))

    def _between(self, find: Find) -> Test:
        low = self._sum().find
        self._words.require("AND")
        high = self._sum().find
        is_between = values.is_between
        return lambda fields: is_between(find(fields), low(fields), high(fields))

    def _membership(self, find: Find) -> Test:
        self._words.require("(")
        members = [self._literal().literal]
        while self._words.take(","):
            members.append(self._literal().literal)
        self._words.require(")")
        is_one = values.one_of(members)
        return lambda fields: is_one(find(fields))

    def _likeness(self, find: Find) -> Test:
        place = self._words.current.place
        pattern = self._text("a pattern in single quotes")
        self.size += len(pattern)
        escape = self._text("a character in single quotes") if self._words.take("ESCAPE") else None
        try:
            is_like = values.like(pattern, escape)
        except ValueError as error:
            raise BadSelector(f"character {place}: {error}") from None
        return lambda fields: is_like(find(fields))

    # Values

    def _sum(self) -> Expression:
        return self._calculated(("+", "-"), self._product)

    def _product(self) -> Expression:
        return self._calculated(("*", "/"), self._sign)

    def _calculated(self, signs: tuple[str, str], part: Callable[[], Expression]) -> Expression:
        first = part()
        steps = []
        while sign := self._words.take(*signs):
            steps.append((values.calculated(sign), part().find))
        return Expression(_calculation(first.find, steps), "number") if steps else first

    def _sign(self) -> Expression:
        if self._words.current.value not in ("+", "-"):
            return self._operand()
        sign = str(self._words.next())
        of = self._within(self._sign)
        if of.kind == "number" and isinstance(of.literal, int | float):
            return _constant(-of.literal if sign == "-" else of.literal)
        return Expression(_calculation(_constant(0).find, [(values.calculated(sign), of.find)]), "number")

    def _operand(self) -> Expression:
        if self._words.take("("):
            found = self._within(self._condition)
            self._words.require(")")
            return found
        return self._field() if self._words.current.kind in ("name", "quoted name") else self._literal()

    def _literal(self) -> Expression:
        sign = self._words.take("+", "-")
        word = self._words.current
        if isinstance(word.value, int | float):
            self._words.next()
            return _constant(-word.value if sign == "-" else word.value)
        if word.kind == "text" and not sign:
            return _constant(str(self._words.next()))
        if not sign and (found := self._words.take("TRUE", "FALSE")):
            return _constant(found == "TRUE")
        return self._words.fail("a number" if sign else "a field, a number, a text in single quotes, TRUE or FALSE")

    def _text(self, expected: str) -> str:
        if self._words.current.kind != "text":
            self._words.fail(expected)
        return str(self._words.next())

    def _field(self) -> Expression:
        word = self._words.next()
        parts = word.value
        assert isinstance(parts, tuple)
        if len(parts) == 1 and (word.kind == "quoted name" or parts[0] not in NAMESPACES):
            return Expression(user_property(parts[0]))
        if word.kind == "quoted name" or parts[0] not in NAMESPACES:
            known = ", ".join(f"{name}." for name in NAMESPACES)
            raise BadSelector(
                f"character {word.place}: {str(word)[:40]} begins with none of {known}; the name of a user property "
                "with a dot in it is written in double quotes"
            )
        self.needs_readings |= parts[0] == "reading"
        try:
            return Expression(field(parts))
        except ValueError as error:
            raise BadSelector(f"character {word.place}: {error}") from None


def _constant(value: Value) -> Expression:
    kind = "truth" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
    return Expression(lambda _: value, kind, value)


def _joint(tests: list[Test], decisive: bool) -> Test:
    """Returns OR if true decides it, AND if false does. Without a decisive test it is NULL if one test is."""

    def joint(fields: Fields) -> Truth:
        found: Truth = not decisive
        for test in tests:
            one = test(fields)
            if one is decisive:
                return decisive
            if one is None:
                found = None
        return found

    return joint


def _opposite(test: Test) -> Test:
    """Returns NOT: NULL stays NULL."""

    def opposite(fields: Fields) -> Truth:
        found = test(fields)
        return None if found is None else not found

    return opposite


def _equal(left: Expression, right: Expression) -> Test:
    equal, first, second = values.equal, left.find, right.find
    text = right.literal
    if left.kind != "field" or not isinstance(text, str):
        return lambda fields: equal(first(fields), second(fields))

    def equals_text(fields: Fields) -> Truth:
        value = first(fields)
        return value == text if type(value) is str else equal(value, text)

    return equals_text


def _calculation(first: Find, steps: list[tuple[Callable[[Value, Value], Value], Find]]) -> Find:
    def calculate(fields: Fields) -> Value:
        value = first(fields)
        for operation, operand in steps:
            value = operation(value, operand(fields))
        return value

    return calculate
