"""Bound syntax trees to `Expression`: canonical text, and the term that kernels compute, if there is one.

Plain terms are strict about types, because indexes, searches and the reference must agree with Spark on every value:
what Spark evaluates after a cast, or in arithmetic narrower than 64 bits, has no plain term, but perhaps a typed one
(`typed_terms`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from penstock.model import And, Arithmetic, Compare, Expression, In, IsNull, Literal, Not, Or, Ref, Term
from penstock.model.expression import AGGREGATE_ROLE, GROUP_ROLE
from penstock.sql.dialect import generate
from penstock.sql.growth import guarded, may_grow
from penstock.sql.inference import VOID, integer_literal, is_rearranged, type_of
from penstock.sql.scope import bound_column, marker, ref_of, unwrapped
from penstock.sql.totality import is_total
from penstock.sql.typed_terms import typed_term
from penstock.sql.types import decimals_widen, family

_MARKER = re.compile("\ue000(\\d+)\ue001")
_KERNEL_FAMILIES = frozenset({"integer", "floating", "string", "boolean"})
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip


@dataclass(frozen=True)
class _Value:
    """A term with its Spark type; `constant` for literals, whose type may still adapt to the other side.

    `text` has the digits of a constant that its term may have rounded.
    """

    term: Term
    type: str
    constant: bool = False
    text: str = ""


def expression(node: exp.Expr) -> Expression:
    """The model's form of a bound syntax tree."""
    tree = unwrapped(node)
    written = expression_parts(tree)
    parts = expression_parts(tree, test=True) if may_grow(tree) else written
    grows = parts != written  # and so it may raise, if the value would be too large
    term = term_of(tree)
    if term is None and not grows:
        found = typed_term(tree)
        term = None if found is None else found.term
    return Expression(parts, term, is_total(tree), written if grows else ())


def column_expression(ref: Ref) -> Expression:
    """A single column."""
    return expression(bound_column(ref, None))


def term_of(node: exp.Expr) -> Term | None:
    """The plain term of a condition, a column, a constant or a sum; None if there is none."""
    value = _value(node)
    return _condition(node) if value is None else value.term


def roles_of(node: exp.Expr) -> tuple[int, ...]:
    """The roles whose columns a bound tree uses, ascending."""
    refs = (ref_of(n) for n in node.walk())
    return tuple(sorted({r.role for r in refs if r is not None and r.role >= 0}))


def expression_parts(node: exp.Expr, *, test: bool = False) -> tuple[str | Ref, ...]:
    """Generate the text with markers for columns, then split it at them; `test` guards calls that may grow."""
    single = ref_of(unwrapped(node))
    if single is not None:
        return (single,)
    tree = exp.Paren(this=unwrapped(node).copy())
    refs: list[Ref] = []
    for column in _columns(tree):
        ref = ref_of(column)
        assert ref is not None
        column.this.set("this", marker(len(refs)))
        refs.append(ref)
    pieces = _MARKER.split(generate(guarded(tree.this) if test else tree.this))
    parts: list[str | Ref] = []
    for index, piece in enumerate(pieces):
        if index % 2:
            parts.append(refs[int(piece)])
        elif piece:
            parts.append(piece)
    return tuple(parts)


def _columns(tree: exp.Expr) -> Iterator[exp.Column]:
    return (c for c in list(tree.find_all(exp.Column)) if ref_of(c) is not None)


def _condition(node: exp.Expr) -> Term | None:
    node = unwrapped(node)
    if isinstance(node, exp.And | exp.Or):
        terms = [_truth(n) for n in node.flatten()]
        found = tuple(t for t in terms if t is not None)
        if len(found) < len(terms):
            return None
        return And(found) if isinstance(node, exp.And) else Or(found)
    if isinstance(node, exp.Not):
        inner = _truth(node.this)
        return None if inner is None else Not(inner)
    if isinstance(node, exp.Is):
        if not isinstance(node.expression, exp.Null):
            return None
        tested = term_of(node.this)
        return None if tested is None else IsNull(tested)
    if isinstance(node, exp.Between):
        if node.args.get("symmetric"):
            return None
        low = _compare(">=", node.this, node.args["low"])
        high = _compare("<=", node.this, node.args["high"])
        return None if low is None or high is None else And((low, high))
    if isinstance(node, exp.In):
        return _membership(node)
    operator = _OPERATORS.get(type(node))
    return None if operator is None else _compare(operator, node.this, node.expression)


def _truth(node: exp.Expr) -> Term | None:
    """A term used as a condition: it must be of type boolean, or NULL."""
    value = _value(node)
    if value is None:
        return _condition(node)
    return value.term if value.type in ("boolean", VOID) else None


def _compare(operator: str, left: exp.Expr, right: exp.Expr) -> Term | None:
    one, other = _value(left), _value(right)
    pair = None if one is None or other is None else _aligned(one, other)
    return None if pair is None else Compare(operator, pair[0].term, pair[1].term)


def _membership(node: exp.In) -> Term | None:
    subject = _value(node.this)
    if subject is None or not node.expressions:
        return None
    values: list[Literal] = []
    for element in node.expressions:
        value = _value(element)
        pair = None if value is None else _aligned(subject, value)
        if pair is None or not isinstance(pair[1].term, Literal) or pair[0] != subject:
            return None
        values.append(pair[1].term)
    return In(subject.term, tuple(values))


def _value(node: exp.Expr) -> _Value | None:
    """A plain column, constant or sum."""
    node = unwrapped(node)
    ref = ref_of(node)
    if ref is not None:
        declared = type_of(node)
        # A column of any type may be tested for NULL or selected; `_aligned` excludes it from comparisons.
        return _Value(ref, declared or "")
    if isinstance(node, exp.Add | exp.Sub):
        return _sum(node)
    return _constant(node)


def _constant(node: exp.Expr) -> _Value | None:
    if isinstance(node, exp.Null):
        return _Value(Literal(None, VOID), VOID, constant=True)
    if isinstance(node, exp.Boolean):
        return _Value(Literal(bool(node.this), "boolean"), "boolean", constant=True)
    integer = integer_literal(node)
    if integer is not None:
        return _Value(Literal(integer[0], "bigint"), integer[1], constant=True)
    if isinstance(node, exp.Literal) and node.is_string:
        return _Value(Literal(node.name, "string"), "string", constant=True)
    if isinstance(node, exp.Cast) and type_of(node) == "double":
        return _number(node.this, "double")
    return _number(node, type_of(node))


def _number(node: exp.Expr, type_name: str | None) -> _Value | None:
    """A decimal or floating constant, stored as a double: it is used only with floating terms."""
    operand, sign = unwrapped(node), 1
    if isinstance(operand, exp.Neg):
        operand, sign = unwrapped(operand.this), -1
    if type_name is None or not isinstance(operand, exp.Literal) or operand.is_string:
        return None
    text = f"{'-' if sign < 0 else ''}{operand.this}"
    return _Value(Literal(sign * float(operand.this), "double"), type_name, constant=True, text=text)


def _sum(node: exp.Add | exp.Sub) -> _Value | None:
    left, right = _value(node.this), _value(node.expression)
    pair = None if left is None or right is None else _aligned(left, right)
    if pair is None or is_rearranged(node):
        return None
    one, other = pair
    operator = "+" if isinstance(node, exp.Add) else "-"
    families = {family(one.type), family(other.type)}
    if families == {"integer"} and "bigint" in (one.type, other.type):
        return _Value(Arithmetic(operator, one.term, other.term), "bigint")
    # Spark adds two floats in 32 bits; a kernel would not.
    if families == {"floating"} and "float" not in (one.type, other.type):
        return _Value(Arithmetic(operator, one.term, other.term), "double")
    return None


def _aligned(left: _Value, right: _Value) -> tuple[_Value, _Value] | None:
    """Both sides as the kernels compare them; None if Spark would cast one as kernels do not."""
    if VOID in (left.type, right.type):
        other = right if left.type == VOID else left
        return (left, right) if family(other.type) in _KERNEL_FAMILIES | {VOID} else None
    if any(value.type.startswith("decimal(") for value in (left, right)) and decimals_widen(left.type, right.type):
        exact = _exact(left), _exact(right)
        return None if exact[0] is None or exact[1] is None else (exact[0], exact[1])
    one, other_family = family(left.type), family(right.type)
    if one == other_family:
        return (left, right) if one in _KERNEL_FAMILIES else None
    if one == "floating" and right.constant:
        number = _as_double(right, left.type)
        return None if number is None else (left, number)
    if other_family == "floating" and left.constant:
        number = _as_double(left, right.type)
        return None if number is None else (number, right)
    return None


def _exact(value: _Value) -> _Value | None:
    """A side of a comparison of decimals: a constant, a group or an aggregate. Columns of rows are left to Spark."""
    match value.term:
        case Ref(role) if role in (GROUP_ROLE, AGGREGATE_ROLE):
            return value
        case Literal(_, "double"):
            return replace(value, term=Literal(value.text, value.type))
        case Literal():
            return value
    return None


def _as_double(constant: _Value, beside: str) -> _Value | None:
    """A numeric constant beside a floating term; an integer beyond 32 bits depends on Spark's mode."""
    value = constant.term.value if isinstance(constant.term, Literal) else None
    if isinstance(value, bool | str | None):
        return None
    number = float(value)
    if beside == "float" and isinstance(value, int) and struct.unpack("f", struct.pack("f", number))[0] != value:
        return None
    return _Value(Literal(number, "double"), "double", constant=True)
