"""Calls of aggregate functions: finding them in a tree, their form in the model, and their result types.

`grouping` reads the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sqlglot import exp

from penstock.columns.types import exact_digits
from penstock.model import Aggregate, Column, UserAggregate
from penstock.sql import functions
from penstock.sql.dialect import generate
from penstock.sql.expressions import expression
from penstock.sql.inference import integer_literal, shape_of, type_of
from penstock.sql.position import start_of
from penstock.sql.scope import Scope, unwrapped
from penstock.sql.types import family
from penstock.sql.windows import check_ordered

Own = Mapping[str, UserAggregate]
Refusal = Callable[[str], Exception]
_NUMERIC = frozenset({"sum", "avg", "stddev_samp", "stddev_pop", "var_samp", "var_pop"})
_ORDERED = frozenset({"min", "max", "any_value", "approx_percentile"})
_COMPARED = frozenset({"approx_count_distinct", "approx_top_k", "heavy_hitters"})  # these compare values for equality
_BY_ROW = frozenset({"first", "last", "collect_list"})
_DISTINCT = frozenset({"count", "sum", "avg", "collect_list"})
_WITHOUT_DUPLICATES = frozenset({"min", "max", "any_value", "approx_count_distinct"})  # DISTINCT changes nothing
_MAX_DIGITS = 38
PLAIN = (
    "take a value of a plain type; nested ones become strings by to_json(..), a collation goes with COLLATE UTF8_BINARY"
)
DEFAULT_ACCURACY = 10_000
DEFAULT_TOP, DEFAULT_TRACKED = 5, 10_000


def aggregate_calls(node: exp.Expr, own: Own) -> Iterator[exp.Anonymous]:
    """The calls of aggregates in a tree."""
    return (call for call in node.find_all(exp.Anonymous) if canonical_name(call, own) is not None)


def canonical_name(node: exp.Expr, own: Own) -> str | None:
    """The model's name of the aggregate that a node calls; None for any other node."""
    if not isinstance(node, exp.Anonymous):
        return None
    name = node.name.lower()
    return name if name in own else functions.ANSWERED_AGGREGATES.get(name)


def read_aggregate(
    call: exp.Anonymous, scope: Scope, own: Own, *, ignore_nulls: bool = False
) -> tuple[Aggregate, str | None]:
    """The aggregate of a bound call, and the type of its value if known."""
    function = canonical_name(call, own)
    assert function is not None
    inner = next((c for a in call.expressions for c in aggregate_calls(a, own)), None)
    if inner is not None:
        raise scope.source.error(
            start_of(inner), "An aggregate of an aggregate has no meaning", "aggregate over a named query"
        )
    arguments, distinct = _arguments(call, scope)
    if arguments and isinstance(arguments[0], exp.IgnoreNulls | exp.RespectNulls):
        ignore_nulls = ignore_nulls or isinstance(arguments[0], exp.IgnoreNulls)
        arguments = [arguments[0].this, *arguments[1:]]
    if function == "count" and len(arguments) == 1 and _is_constant(arguments[0]) and not distinct:
        return Aggregate("count", None), "bigint"
    if not arguments or isinstance(arguments[0], exp.Star):
        raise scope.source.error(start_of(call), f"{call.name} needs an argument")
    if distinct and function not in _DISTINCT | _WITHOUT_DUPLICATES:
        raise scope.source.unsupported(start_of(call), f"{call.name} does not take DISTINCT")
    argument, argument_type = arguments[0], type_of(arguments[0])
    _check_type(call, function, shape_of(argument), scope, distinct=distinct)
    parameters = _parameters(call, function, arguments[1:], scope, ignore_nulls=ignore_nulls)
    if function in own:
        return Aggregate(function, expression(argument), distinct, parameters), own[function].type
    once = distinct and function in _DISTINCT
    return Aggregate(function, expression(argument), once, parameters), result_type(
        function, argument_type, len(parameters)
    )


def result_type(function: str, argument: str | None, parameters: int = 0) -> str | None:
    """Spark's type of an aggregate's value; None if the type of the argument is unknown."""
    match function:
        case "count" | "approx_count_distinct":
            return "bigint"
        case "stddev_samp" | "stddev_pop" | "var_samp" | "var_pop":
            return "double"
    if argument is None:
        return None
    digits = exact_digits(argument) if argument.startswith("decimal(") else None
    match function:
        case "sum" if digits is not None:
            return _decimal(digits[0] + 10, digits[1])
        case "avg" if digits is not None:
            return _decimal(digits[0] + 4, digits[1] + 4)
        case "sum":
            return "bigint" if family(argument) == "integer" else "double"
        case "avg":
            return "double"
        case "collect_list":
            return f"array<{argument}>"
        case "approx_percentile":
            return f"array<{argument}>" if parameters > 2 else argument
        case "approx_top_k" | "heavy_hitters":
            return f"array<struct<item:{argument},count:bigint>>"
    return argument


def shown_name(call: exp.Anonymous) -> str:
    """Spark's name for an item that is a single call of an aggregate."""
    arguments = ["1" if isinstance(a, exp.Star) else _bare_text(a) for a in call.expressions]
    return f"{call.name.lower()}({', '.join(arguments)})"


def _bare_text(node: exp.Expr) -> str:
    """The text of an argument with unqualified columns."""
    copy = node.copy()
    for column in copy.find_all(exp.Column):
        for part in ("table", "db", "catalog"):
            column.set(part, None)
    return generate(copy)


def _arguments(call: exp.Anonymous, scope: Scope) -> tuple[list[exp.Expr], bool]:
    arguments = list(call.expressions)
    if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        values = list(arguments[0].expressions)
        if len(values) != 1:
            raise scope.source.unsupported(
                start_of(call),
                "DISTINCT over several columns is not supported",
                "put them into one value, for example with concat",
            )
        return values, True
    return arguments, False


def _is_constant(node: exp.Expr) -> bool:
    """`count(*)` and `count(1)` count rows."""
    return isinstance(node, exp.Star) or (isinstance(node, exp.Literal) and not node.is_string)


def refused_type(function: str, argument: str, *, distinct: bool) -> tuple[str, str] | None:
    """Why a function does not accept values of this type, and the remedy; None if it does."""
    number = family(argument) in ("integer", "floating") or argument.startswith("decimal(")
    if function in _NUMERIC and not number:
        return f"takes numbers, not {argument}", "cast it to a number"
    if function in _ORDERED and not is_plain(argument):
        return f"takes values that have an order, not {argument}", PLAIN
    if function == "approx_percentile" and not number:
        return f"takes numbers, not {argument}", "cast it to a number"
    if (function in _COMPARED or distinct) and not is_plain(argument):
        called = "takes values" if function in _COMPARED else "with DISTINCT takes values"
        return f"{called} that can be compared, not {argument}", PLAIN
    return None


def is_plain(type_name: str) -> bool:
    """Whether values of a type can be compared here: neither nested types nor strings with a collation."""
    return Column("", type_name).orderable


def _check_type(call: exp.Anonymous, function: str, argument: str | None, scope: Scope, *, distinct: bool) -> None:
    if function in _BY_ROW:
        for stream in scope.streams:
            check_ordered(
                scope.source,
                start_of(call),
                stream,
                f"{call.name} and other functions that depend on the order of rows",
            )
    if argument is None:
        return
    refusal = refused_type(function, argument, distinct=distinct)
    if refusal is not None:
        raise scope.source.unsupported(start_of(call), f"{call.name} {refusal[0]}", refusal[1])


def _parameters(
    call: exp.Anonymous, function: str, given: Sequence[exp.Expr], scope: Scope, *, ignore_nulls: bool
) -> tuple[int | float, ...]:
    """The constants after the argument, checked, with Spark's defaults for missing ones."""

    def refuse(message: str) -> Exception:
        return scope.source.error(start_of(given[0]) if given else start_of(call), message)

    match function, list(given):
        case (("first" | "last"), []):
            return (1,) if ignore_nulls else ()
        case (("first" | "last"), [exp.Boolean() as flag]):
            return (1,) if flag.this or ignore_nulls else ()
        case "approx_count_distinct", [one]:
            deviation = _number(one)
            if deviation is None or not 0 < deviation < 1:
                raise refuse("The relative standard deviation is a number between 0 and 1, as in 0.05")
            return (deviation,)
        case "approx_percentile", [shares, *rest] if len(rest) <= 1:
            return _accuracy(rest, refuse), *_shares(shares, refuse)
        case "approx_top_k", [*rest] if len(rest) <= 2:
            counts = [integer_literal(node) for node in rest]
            if not all(count is not None and count[0] >= 1 for count in counts):
                raise refuse("The number of items is a whole number, at least 1")
            found = [count[0] for count in counts if count is not None]
            return (*found, *(DEFAULT_TOP, DEFAULT_TRACKED)[len(found) :])
        case "heavy_hitters", [one]:
            share = _number(one)
            if share is None or not 0 < share <= 1:
                raise refuse("The share of a heavy hitter is a number above 0 and up to 1, as in 0.05")
            return (share,)
        case (("approx_percentile" | "heavy_hitters"), []):
            raise refuse(f"{call.name} needs a share as its second argument, as in 0.5")
        case _, []:
            return ()
    raise refuse(f"{call.name} does not take these arguments")


def _accuracy(given: Sequence[exp.Expr], refuse: Refusal) -> int:
    if not given:
        return DEFAULT_ACCURACY
    accuracy = integer_literal(given[0])
    if accuracy is None or accuracy[0] < 1:
        raise refuse("The accuracy is a whole number, at least 1")
    return accuracy[0]


def _shares(node: exp.Expr, refuse: Refusal) -> list[float]:
    node = unwrapped(node)
    several = isinstance(node, exp.Anonymous) and node.name.lower() == "array"
    shares = [_number(n) for n in (node.expressions if several else [node])]
    found = [share for share in shares if share is not None and 0 <= share <= 1]
    if len(found) < len(shares) or not found:
        raise refuse("A share is a number from 0 to 1, as in 0.5")
    if several and len(found) == 1:
        raise refuse("An array of one share: write the share alone")
    return found


def _number(node: exp.Expr) -> float | None:
    node = unwrapped(node)
    return float(node.this) if isinstance(node, exp.Literal) and not node.is_string else None


def _decimal(precision: int, scale: int) -> str:
    return f"decimal({min(precision, _MAX_DIGITS)},{min(scale, _MAX_DIGITS)})"
