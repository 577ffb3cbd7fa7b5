"""Whether evaluating an expression can never raise, by a closed list: what is not on it may raise.

Spark is assumed to run in ANSI mode, where casts and integer arithmetic raise. Nothing with operands of unknown type is
total.

Total are:
* columns, fields of structs, constants;
* AND, OR, NOT, IS NULL, comparisons, IN and BETWEEN of operands that Spark compares without a cast that can fail;
* CASE, IF, COALESCE, NVL, NULLIF of such operands;
* + - * and the elementary functions of floating types; the try_ forms of arithmetic;
* functions on strings that take any string, LIKE with a constant pattern, substrings with constant bounds;
* parts of times, CAST to string of atomic types, and CAST to a wider number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime
from itertools import pairwise

from sqlglot import exp

from penstock.columns.types import exact_digits
from penstock.model.stream import TIME_TYPES
from penstock.sql import functions
from penstock.sql.growth import grows
from penstock.sql.inference import COMPARISONS, NUMBER_RANK, VOID, choices, function_call, integer_literal, type_of
from penstock.sql.scope import ref_of, unwrapped
from penstock.sql.types import decimals_widen, family

_TO_STRING = frozenset({"integer", "floating", "string", "boolean", "date", "timestamp", "timestamp_ntz"})


def is_total(node: exp.Expr) -> bool:
    """Whether evaluating the expression can never raise, for any row."""
    node = unwrapped(node)
    if ref_of(node) is not None or isinstance(node, exp.Literal | exp.Boolean | exp.Null):
        return True
    if isinstance(node, exp.Neg):
        return isinstance(unwrapped(node.this), exp.Literal) or (
            family(type_of(node.this)) == "floating" and is_total(node.this)
        )
    if isinstance(node, exp.Dot):
        return isinstance(node.expression, exp.Identifier) and is_total(node.this)
    if isinstance(node, exp.And | exp.Or):
        return _all_conditions(node.flatten())
    if isinstance(node, exp.Not):
        return _all_conditions((node.this,))
    if isinstance(node, exp.Is):
        return is_total(node.this) and isinstance(node.expression, exp.Null | exp.Boolean)
    if isinstance(node, COMPARISONS):
        return comparable((node.this, node.expression))
    if isinstance(node, exp.Between):
        low, high = node.args["low"], node.args["high"]
        return comparable((node.this, low)) and comparable((node.this, high))
    if isinstance(node, exp.In):
        return bool(node.expressions) and all(comparable((node.this, e)) for e in node.expressions)
    if isinstance(node, exp.Like | exp.ILike):
        return _total_strings((node.this,)) and _plain_pattern(node.expression)
    if isinstance(node, exp.DPipe):
        return _total_strings((node.this, node.expression))
    if isinstance(node, exp.Add | exp.Sub | exp.Mul):
        floats = [family(type_of(e)) for e in (node.this, node.expression)]
        return (
            set(floats) <= {"floating", "integer"}
            and "floating" in floats
            and is_total(node.this)
            and is_total(node.expression)
        )
    if isinstance(node, exp.Cast):
        return _total_cast(node)
    if isinstance(node, exp.Case | exp.If):
        return _total_choice(node)
    if isinstance(node, exp.Extract):
        return _total_part(node.name.lower(), node.expression)
    call = function_call(node)
    return call is not None and _total_call(*call)


def comparable(operands: Iterable[exp.Expr]) -> bool:
    """Whether the operands are total and Spark compares them without a cast that can fail."""
    nodes = list(operands)
    return all(is_total(n) for n in nodes) and _compatible([type_of(n) for n in nodes])


def _compatible(types: Iterable[str | None]) -> bool:
    known = [t for t in types if t != VOID]
    return all(_pair_compatible(a, b) for a, b in pairwise(known))


def _pair_compatible(left: str | None, right: str | None) -> bool:
    if left is None or right is None:
        return False
    numbers = {"integer", "floating"}
    if left == right or {family(left), family(right)} <= numbers:
        return True
    if decimals_widen(left, right):
        return True
    decimal_beside_float = {family(left), family(right)} & {"floating"}
    return bool(decimal_beside_float) and any(exact_digits(t) is not None for t in (left, right))


def _all_conditions(nodes: Iterable[exp.Expr]) -> bool:
    return all(type_of(n) in ("boolean", VOID) and is_total(n) for n in nodes)


def _total_strings(nodes: Iterable[exp.Expr]) -> bool:
    return all(type_of(n) in ("string", VOID) and is_total(n) for n in nodes)


def _plain_pattern(node: exp.Expr) -> bool:
    """A LIKE pattern raises if it ends in the escape character, so only constants without one are safe."""
    return isinstance(node, exp.Literal) and node.is_string and "\\" not in node.name


def _total_cast(node: exp.Cast) -> bool:
    source, target = type_of(node.this), type_of(node)
    if node.args.get("safe"):  # TRY_CAST
        return is_total(node.this)
    if isinstance(node.this, exp.Literal):
        return _is_time_constant(node.this, target) or integer_literal(node) is not None or _is_float(node.this, target)
    if not is_total(node.this) or source is None or target is None:
        return False
    if source in (target, VOID):
        return True
    if target == "string":
        return family(source) in _TO_STRING or exact_digits(source) is not None
    if source in NUMBER_RANK and target in NUMBER_RANK:
        return NUMBER_RANK[source] <= NUMBER_RANK[target]
    return False


# The forms that Spark reads too; Python accepts more.
_TIME = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")


def _is_time_constant(node: exp.Literal, target: str | None) -> bool:
    if not node.is_string or target not in TIME_TYPES or _TIME.fullmatch(node.name) is None:
        return False
    try:
        if target == "date":
            date.fromisoformat(node.name)
        else:
            datetime.fromisoformat(node.name)
    except ValueError:
        return False
    return True


def _is_float(node: exp.Literal, target: str | None) -> bool:
    return not node.is_string and target in ("double", "float", "string")


def _total_choice(node: exp.Expr) -> bool:
    values = choices(node)
    if isinstance(node, exp.Case):
        subject = node.this
        for branch in node.args["ifs"]:
            if not (comparable((subject, branch.this)) if subject is not None else _all_conditions((branch.this,))):
                return False
    elif not _all_conditions((node.this,)):
        return False
    return comparable(values)


def _total_part(name: str, operand: exp.Expr) -> bool:
    types = TIME_TYPES if name in functions.TIME_PARTS else frozenset({"timestamp", "timestamp_ntz"})
    known = name in functions.TIME_PARTS | functions.CLOCK_PARTS
    return known and type_of(operand) in types and is_total(operand)


def _total_call(name: str, arguments: list[exp.Expr]) -> bool:
    if not all(is_total(a) for a in arguments):
        return False
    types = [type_of(a) for a in arguments]
    if grows(name, arguments):  # a too large value raises
        return False
    if name in functions.STRING_FUNCTIONS:
        return all(t in ("string", VOID) for t in types)
    if name in functions.SUBSTRING_FUNCTIONS:
        return bool(types) and types[0] == "string" and all(integer_literal(a) is not None for a in arguments[1:])
    if name in functions.FLOATING_FUNCTIONS:
        return all(family(t) == "floating" for t in types)
    if name in functions.TIME_PARTS | functions.CLOCK_PARTS:
        return len(arguments) == 1 and _total_part(name, arguments[0])
    if name in functions.TRY_ARITHMETIC:
        return all(family(t) in ("integer", "floating") for t in types)
    if name in functions.CHOICE_FUNCTIONS:
        return _compatible(types)
    if name in functions.NULL_TESTS:
        return True
    if name == "date_trunc":
        return len(arguments) == 2 and isinstance(arguments[0], exp.Literal) and types[1] == "timestamp"
    return False
