"""An analysis without Spark: the types of expressions that our own terms compute, or whose text alone defines them.

It agrees with Spark about an expression, or refuses it by name: what is not known to be right here needs Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from penstock.catalog.analysis import Fields, Resolved
from penstock.errors import RegistrationError
from penstock.model import Column, Expression, Ref, Role, Stream
from penstock.planner.meaning import ANSI, ZONE
from penstock.sql.dialect import parse_select, tokenize
from penstock.sql.inference import VOID, function_call, type_of
from penstock.sql.position import Text
from penstock.sql.scope import Scope, bind, ref_of, unwrapped
from penstock.sql.spelling import quote
from penstock.sql.totality import is_total
from penstock.sql.typed_terms import typed_term
from penstock.sql.types import family


@dataclass(frozen=True)
class TermsAnalysis:
    """Types by our own terms, in ANSI mode."""

    settings: dict[str, str] = field(default_factory=lambda: {ZONE: "UTC", ANSI: "true"})

    def resolve(
        self,
        query: str,
        fields: Fields,
        expressions: Sequence[Expression | None],
        conditions: Sequence[Expression] = (),
    ) -> list[Resolved]:
        """Only a column has a default name here: callers that need one refuse other unnamed expressions."""
        asked = [*expressions, *conditions]
        nodes = _bound(fields, [e for e in asked if e is not None])
        found = []
        for number, expression in enumerate(asked):
            node = None if expression is None else nodes.pop(0)
            kind = VOID if node is None else _type(node)
            if kind is None:
                assert expression is not None
                msg = (
                    f"query {query!r}: the type of {_shown(expression)} is known to Spark alone, and this engine "
                    "has none"
                )
                raise RegistrationError(msg)
            if number >= len(expressions) and kind not in ("boolean", VOID):
                assert expression is not None
                raise RegistrationError(f"query {query!r}: {_shown(expression)} is {kind}, and a condition is boolean")
            ref = None if node is None else ref_of(node)
            found.append(Resolved("" if ref is None else ref.column, kind))
        return found[: len(expressions)]


def _bound(fields: Fields, expressions: Sequence[Expression]) -> list[exp.Expr]:
    """The syntax trees of expressions, whose columns have types."""
    if not expressions:
        return []
    tables: Mapping[str, tuple[Column, ...]] = {f"_r{n}": columns for n, columns in enumerate(fields.roles)}
    tables = {**tables, "_result": fields.result}
    streams = tuple(Stream(name, columns, columns[0].name, delay=None) for name, columns in tables.items())
    source = Text("SELECT " + ", ".join(e.shown(_column) for e in expressions))
    scope = Scope(source, tuple(Role(name, name, None) for name in tables), streams)
    return [bind(node, scope) for node in parse_select(source, tokenize(source)).expressions]


def _type(node: exp.Expr) -> str | None:
    """The type of an expression that a term computes, or that is total."""
    term = typed_term(node)
    return (type_of(node) if is_total(node) else _written(node)) if term is None else term.type


def _written(node: exp.Expr) -> str | None:
    """The type of a condition, which is one whatever raises in it; and of what the planner itself writes.

    That derives the start of a window from its end.
    """
    node = unwrapped(node)
    if isinstance(node, exp.And | exp.Or | exp.Not):
        parts = node.flatten() if isinstance(node, exp.Connector) else [node.this]
        return "boolean" if all(_type(part) == "boolean" for part in parts) else None
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return None if _type(node.this) is None else "boolean"
    if isinstance(node, exp.Between):
        compared = [_type(part) for part in (node.this, node.args["low"], node.args["high"])]
        return "boolean" if all(kind is not None and family(kind) == "integer" for kind in compared) else None
    if isinstance(node, exp.Sub):
        return "bigint" if _type(node.this) == _type(node.expression) == "bigint" else None
    name, arguments = function_call(node) or ("", [])
    kinds = {_type(argument) for argument in arguments}
    if (name, kinds) == ("timestamp_micros", {"bigint"}):
        return "timestamp"
    if (name, kinds) == ("unix_micros", {"timestamp"}):
        return "bigint"
    return kinds.pop() if name == "greatest" and kinds in ({"bigint"}, {"timestamp"}) else None


def _column(ref: Ref) -> str:
    return f"_r{ref.role}.{quote(ref.column)}" if ref.role >= 0 else f"_result.{quote(ref.column)}"


def _shown(expression: Expression) -> str:
    return expression.shown(lambda ref: ref.column)
