"""Bound syntax trees of a view to expressions that can be evaluated outside Spark, each with its Spark type.

More than plain terms: also `*` and `/`, arithmetic of any numbers, and constants of type date, timestamp and decimal.
All other SQL is refused here, at its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from sqlglot import exp

from penstock.columns.types import decimal_of, exact_digits
from penstock.errors import SqlError
from penstock.model import And, Arithmetic, Compare, Expression, In, IsNull, Literal, Not, Or, Term
from penstock.sql.expressions import expression
from penstock.sql.inference import NUMBER_RANK, VOID, integer_literal, type_of
from penstock.sql.lengths import whole_number
from penstock.sql.position import Text, start_of
from penstock.sql.scope import ref_of, unwrapped
from penstock.sql.types import decimals_widen, family

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
# SQL spellings of nodes that the parser names differently.
_WRITTEN: dict[type[exp.Expr], str] = {
    exp.TryCast: "CAST", exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^", exp.BitwiseNot: "~",
    exp.DPipe: "||",
    exp.RegexpLike: "RLIKE", exp.IntDiv: "DIV", exp.Mod: "%", exp.Dot: "A field of a struct", exp.Bracket: "[..]",
    exp.NullSafeEQ: "<=>",
}  # fmt: skip
_TIMES = ("date", "timestamp", "timestamp_ntz")
_KNOWN = (
    "a view knows columns, constants, + - * /, comparisons, AND, OR, NOT, IN, BETWEEN and IS NULL; "
    "compute the rest in the source"
)
MOST_DIGITS = 38
_DOUBLE_DIGITS = 15


@dataclass(frozen=True)
class Typed:
    """A term and the Spark type of its values; for a constant in quotes also its node."""

    term: Term
    type: str
    text: exp.Literal | None = None

    @property
    def constant(self) -> bool:
        return isinstance(self.term, Literal)


def view_expression(node: exp.Expr, source: Text) -> tuple[Expression, str]:
    """A value of a view and its type."""
    node = node.copy()  # its constants get their offsets
    found = _term(node, source)
    return replace(expression(node), term=found.term), found.type


def view_condition(node: exp.Expr, source: Text) -> Expression:
    """A condition of a view."""
    found, kind = view_expression(node, source)
    if kind not in ("boolean", VOID):
        raise source.error(start_of(node), f"A condition must be true or false, this is of type {kind}")
    return found


def joins_equal(left: str, right: str) -> str | None:
    """None if columns of these types can be joined, else why not.

    Equality must be transitive, and a key must be found in either column: so Spark must not round one of them for the
    comparison.
    """
    if left == right:
        return None
    if not (_is_number(left) and _is_number(right)):
        return "they are not compared without a cast"
    floating = [family(kind) == "floating" for kind in (left, right)]
    if all(floating):
        return None
    if any(floating):
        exact = right if floating[0] else left
        digits = exact_digits(exact)
        assert digits is not None
        return (
            None if digits[0] <= _DOUBLE_DIGITS else f"a double holds {_DOUBLE_DIGITS} digits exactly, {exact} has more"
        )
    if decimals_widen(left, right):
        return None
    return f"there is no decimal of {MOST_DIGITS} digits that holds all values of both"


def _term(node: exp.Expr, source: Text) -> Typed:
    node = unwrapped(node)
    ref = ref_of(node)
    if ref is not None:
        return Typed(ref, type_of(node) or "")
    constant = _constant(node, source)
    if constant is not None:
        return constant
    arithmetic = _ARITHMETIC.get(type(node))
    if arithmetic is not None:
        return _computed(node, arithmetic, _term(node.this, source), _term(node.expression, source), source)
    if isinstance(node, exp.Neg):
        return _computed(node, "-", Typed(Literal(0, "bigint"), "int"), _term(node.this, source), source)
    operator = _OPERATORS.get(type(node))
    if operator is not None:
        left, right = _aligned(node, _term(node.this, source), _term(node.expression, source), source)
        return Typed(Compare(operator, left.term, right.term), "boolean")
    if isinstance(node, exp.And | exp.Or):
        terms = tuple(_truth(n, source) for n in node.flatten())
        return Typed(And(terms) if isinstance(node, exp.And) else Or(terms), "boolean")
    if isinstance(node, exp.Not):
        return Typed(Not(_truth(node.this, source)), "boolean")
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return Typed(IsNull(_term(node.this, source).term), "boolean")
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        tested = _term(node.this, source)
        low = _aligned(node, tested, _term(node.args["low"], source), source)
        high = _aligned(node, tested, _term(node.args["high"], source), source)
        return Typed(
            And((Compare(">=", low[0].term, low[1].term), Compare("<=", high[0].term, high[1].term))), "boolean"
        )
    if isinstance(node, exp.In) and node.expressions:
        return _membership(node, source)
    raise _refused(node, source)


def _refused(node: exp.Expr, source: Text) -> SqlError:
    what = (
        node.name.upper()
        if isinstance(node, exp.Anonymous)
        else _WRITTEN.get(type(node)) or type(node).__name__.upper()
    )
    return source.unsupported(start_of(node), f"{what} is not supported in a view", _KNOWN)


def _truth(node: exp.Expr, source: Text) -> Term:
    found = _term(node, source)
    if found.type not in ("boolean", VOID):
        raise source.error(start_of(node), f"A condition must be true or false, this is of type {found.type}")
    return found.term


def _membership(node: exp.In, source: Text) -> Typed:
    tested = _term(node.this, source)
    values = []
    for element in node.expressions:
        value = _term(element, source)
        if not isinstance(value.term, Literal):
            raise source.unsupported(
                start_of(element), "IN takes constants only in a view", "write OR between comparisons"
            )
        aligned = _aligned(node, tested, value, source)[1].term
        assert isinstance(aligned, Literal)
        values.append(aligned)
    return Typed(In(tested.term, tuple(values)), "boolean")


def _constant(node: exp.Expr, source: Text) -> Typed | None:
    if isinstance(node, exp.Null):
        return Typed(Literal(None, VOID), VOID)
    if isinstance(node, exp.Boolean):
        return Typed(Literal(bool(node.this), "boolean"), "boolean")
    integer = integer_literal(node)
    if integer is not None:
        return Typed(Literal(integer[0], "bigint"), integer[1])
    if isinstance(node, exp.Literal) and node.is_string:
        return Typed(Literal(node.name, "string"), "string", node)
    if isinstance(node, exp.Cast) and isinstance(unwrapped(node.this), exp.Literal) and unwrapped(node.this).is_string:
        kind = type_of(node)
        if kind in _TIMES:
            return Typed(Literal(_moment(unwrapped(node.this), kind, node, source), kind), kind)
    sign, operand = ("-", unwrapped(node.this)) if isinstance(node, exp.Neg) else ("", node)
    kind = type_of(operand) if isinstance(operand, exp.Literal) else None
    if kind == "double":
        return Typed(Literal(float(sign + operand.name), "double"), "double")
    if kind is not None and exact_digits(kind) is not None and not operand.is_string:
        return Typed(Literal(sign + operand.name, kind), kind)
    return None


def _moment(constant: exp.Expr, kind: str, node: exp.Expr, source: Text) -> str:
    """The text of a date or time, checked. A timestamp without an offset gets that of UTC, as Spark reads it."""
    try:
        found = (date if kind == "date" else datetime).fromisoformat(constant.name.strip())
    except ValueError:
        example = "2024-12-31" if kind == "date" else "2024-12-31 23:59:59"
        raise source.error(start_of(node), f"{constant.name!r} is no {kind}", f"write it like '{example}'") from None
    if kind == "timestamp" and isinstance(found, datetime):
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        constant.set("this", found.isoformat())
    return found.isoformat()


def _is_number(kind: str) -> bool:
    return family(kind) in ("integer", "floating") or exact_digits(kind) is not None


def _aligned(node: exp.Expr, left: Typed, right: Typed, source: Text) -> tuple[Typed, Typed]:
    """Both sides as they are compared; a string constant takes the type of the other side."""
    left, right = _read(left, right, node, source), _read(right, left, node, source)
    if VOID in (left.type, right.type) or left.type == right.type:
        return left, right
    if _is_number(left.type) and _is_number(right.type):
        _refuse_rounding(node, left, right, source)
        return left, right
    raise source.unsupported(
        start_of(node), f"{left.type} and {right.type} are not compared in a view", "compare values of one type"
    )


def _refuse_rounding(node: exp.Expr, left: Typed, right: Typed, source: Text) -> None:
    """Decimals that need rounding to a common type are not compared; doubles are compared as they are."""
    if "floating" in (family(left.type), family(right.type)):
        return
    one, other = _digits(left), _digits(right)
    if max(one[0] - one[1], other[0] - other[1]) + max(one[1], other[1]) > MOST_DIGITS:
        raise source.unsupported(
            start_of(node),
            f"No decimal of {MOST_DIGITS} digits holds all values of {left.type} and {right.type}",
            "declare one of them with fewer digits",
        )


def _read(constant: Typed, beside: Typed, node: exp.Expr, source: Text) -> Typed:
    """A string constant as a value of the other side's type, as Spark casts it."""
    if not (isinstance(constant.term, Literal) and constant.type == "string") or beside.type in ("string", VOID):
        return constant
    text = str(constant.term.value)
    if beside.type in _TIMES:
        assert constant.text is not None
        return Typed(Literal(_moment(constant.text, beside.type, node, source), beside.type), beside.type)
    try:
        if family(beside.type) == "integer":
            return Typed(Literal(_integer(text), "bigint"), "bigint")
        if family(beside.type) == "floating":
            return Typed(Literal(float(text), "double"), "double")
    except ValueError:
        raise source.error(start_of(node), f"{text!r} is no value of type {beside.type}") from None
    return constant


def _integer(text: str) -> int:
    digits = text.strip().removeprefix("-").removeprefix("+")
    number = whole_number(digits)
    value = None if number is None else -number if text.strip().startswith("-") else number
    if value is None or not -(2**63) <= value < 2**63:
        raise ValueError(text)
    return value


def _computed(node: exp.Expr, operator: str, left: Typed, right: Typed, source: Text) -> Typed:
    for side in (left, right):
        if side.type != VOID and not _is_number(side.type):
            raise source.unsupported(start_of(node), f"{operator} takes numbers in a view, not {side.type}", _KNOWN)
    term = Arithmetic(operator, left.term, right.term)
    if VOID in (left.type, right.type):
        return Typed(term, left.type if right.type == VOID else right.type)
    families = {family(left.type), family(right.type)}
    if "floating" in families:
        same = left.type == right.type and operator != "/"
        return Typed(term, left.type if same else "double")
    if families == {"integer"}:
        return Typed(term, "double" if operator == "/" else max(left.type, right.type, key=lambda t: NUMBER_RANK[t]))
    if operator == "/":
        raise source.unsupported(
            start_of(node),
            "Decimals are not divided in a view",
            "divide when you read it, or declare the column as DOUBLE",
        )
    precision, scale = decimal_of(operator, _digits(left), _digits(right))
    if precision > MOST_DIGITS:
        raise source.unsupported(
            start_of(node),
            f"The result could have {precision} digits, and decimals have {MOST_DIGITS}",
            "use narrower columns",
        )
    return Typed(term, f"decimal({precision},{scale})")


def _digits(side: Typed) -> tuple[int, int]:
    if isinstance(side.term, Literal) and family(side.type) == "integer":
        return len(str(abs(int(str(side.term.value))))), 0
    found = exact_digits(side.type)
    assert found is not None
    return found
